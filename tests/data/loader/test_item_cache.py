"""The item cache gives what a task makes, counts what is skipped in each epoch, and saves making items again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_stand_in import Characters
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.batch import Batch
from qkv.data.batching.settings import Batching
from qkv.data.loader.item_cache import ItemCache, repeats, size_of
from qkv.data.loader.stream import stream
from qkv.data.readers.labelled_text import Labelled
from qkv.data.source import Counts, Example, Skipped, read
from qkv.data.task import Item, RandomContext, Task
from qkv.runs.tasks.tagging.task import Tag
from qkv.runs.tasks.text_classification.task import Classify
from qkv.runs.tasks.text_similarity.task import Similarity

TABLE: list[Example | Skipped | None] = [
    {"text": "ab", "label": "x"},
    None,
    Skipped("empty", "line 3"),
    {"text": "c" * 50, "label": "y"},
    {"text": "d", "label": "z"},
    {"text": "", "label": "x"},
]
TASK = Classify(classes=("x", "y"), longest=20, over_long="skip", on_error="skip")


def randomness() -> RandomContext:
    return RandomContext(np.random.default_rng(0), training=True)


def told(items: Sequence[Item | Skipped], counts: Counts) -> tuple[list[Any], int]:
    seen = [str(i) if isinstance(i, Skipped) else (i.arrays["ids"].tolist(), int(i.labels)) for i in items]  # type: ignore[arg-type]
    return seen, counts.read


@given(st.lists(st.permutations(range(6)).flatmap(lambda p: st.integers(0, 6).map(lambda n: p[:n])), max_size=6))
def test_a_cache_gives_what_the_task_makes(asked: list[list[int]]) -> None:
    for budget in (0, 1500, 1 << 20):
        cache = ItemCache(budget)
        for indices in asked:
            counts, plain = Counts(), Counts()
            found = cache.items(TABLE, indices, lambda e: TASK.items_of_each(e, Characters(), randomness()), counts)
            made = TASK.items(read(TABLE, indices, plain), Characters(), randomness())
            entries = [TABLE[i] for i in indices]
            skipped = {i for i, entry in enumerate(e for e in entries if e is not None) if isinstance(entry, Skipped)}
            of_examples = [item for i, item in enumerate(found) if i not in skipped]
            assert told(of_examples, counts) == told(made, plain)
            assert [str(found[i]) for i in sorted(skipped)] == ["empty"] * plain.skipped.total()


def test_items_are_made_once_while_they_fit() -> None:
    made: list[int] = []

    def make(examples: list[Example]) -> list[list[Item | Skipped]]:
        made.append(len(examples))
        return TASK.items_of_each(examples, Characters(), randomness())

    for budget, expected in ((1 << 20, [4]), (0, [4, 4])):
        made.clear()
        cache = ItemCache(budget)
        for _ in range(2):
            cache.items(TABLE, range(6), make, Counts())
        assert made == expected


def test_sizes_are_about_what_python_takes() -> None:
    examples: list[Example] = [{"text": f"{i} " + "word " * (i % 50), "label": "x"} for i in range(500)]
    tokenizer = Characters()
    TASK.items_of_each(examples[:1], tokenizer, randomness())
    tracemalloc.start()
    items = Classify(classes=("x", "y"), longest=300).items_of_each(examples, tokenizer, randomness())
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 * taken < size_of(items) < 2 * taken  # what is shared counts several times


class Sampled(Classify):
    def inputs_of(self, *given: Any) -> Any:
        return super().inputs_of(*given)


def test_tasks_say_whether_their_items_repeat() -> None:
    assert repeats(TASK, Characters()) and repeats(Similarity(), Characters()) and repeats(Tag(), Characters())
    sampled = Characters()
    sampled.dropout = 0.1  # type: ignore[attr-defined]
    assert not repeats(TASK, sampled) and not repeats(Similarity(positive=3), Characters())
    assert not repeats(Sampled(), Characters()), "a class that makes items in its own way says so for itself"
    assert not Task.repeats(TASK, Characters())


@pytest.mark.parametrize("cache, passes", [(0, 3), (1, 1)])
def test_epochs_have_the_same_batches_and_counts_with_a_cache(tmp_path: Path, cache: int, passes: int) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{'xyz'[i % 3]} {'word ' * (i % 7 + 1)}{i}\n" for i in range(90)))
    source = Labelled(path=str(path), validation_path=str(path), test_path=str(path))

    def batches(cache: int, tokenizer: Characters) -> tuple[list[Batch], str]:
        batching = Batching(tokens=400, pool=20, cache=cache, workers=0)
        task = TASK.replace(longest=40)
        with stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=3, seed=1) as found:
            return list(found), str(found.report)

    tokenizer = Characters()
    (ours, report), (expected, counted) = batches(cache, tokenizer), batches(0, Characters())
    assert report == counted and "30" in report and len(ours) == len(expected) > 20
    for one, other in zip(ours, expected, strict=True):
        assert np.array_equal(one.inputs["ids"], other.inputs["ids"]) and one.position == other.position
    assert tokenizer.texts_seen == 90 * passes
