"""Tasks on whole texts: what a batch holds, what is settled from the data, and labels that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.core.layout import Role
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.readers.labelled_text import Labelled
from qkv.data.source import Example, Skipped, Source, Split, Table
from qkv.data.task import RandomContext
from qkv.layers.embedding import Embedding
from qkv.tasks.multiple_choice.task import Choice
from qkv.tasks.text_classification.task import Classify
from qkv.tasks.text_regression.task import Regress
from qkv.tasks.text_similarity.task import Similarity
from qkv.tasks.whole_texts import Sentences
from qkv.tokenizers.tokenizer import Tokenizer, train
from qkv.tokenizers.training.spec import TokenizerSpec

WORDS = "a b c d e f g h"
PLAIN, TYPED = Embedding(), Embedding(token_types=2)


class Given(Source, kind="given-test"):
    """Examples as they are, and for validation and test others."""

    train: tuple[Example, ...]
    others: tuple[Example, ...] = ()

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.train if split == "train" else self.others


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def chance(training: bool = True) -> RandomContext:
    return RandomContext(np.random.default_rng(0), training)


def batch(task: Sentences, examples: list[Example], tokenizer: Tokenizer, split: Split = "train") -> Any:
    source = Given(train=tuple(examples), others=tuple(examples))
    batching = Batching(tokens=4096, workers=0, shuffle=False)
    with stream(source, tokenizer, batching, seq2seq=False, task=task, split=split) as batches:
        return next(batches)


LABELLED = [{"text": "a b", "label": "no"}, {"text": "c", "label": "yes"}, {"text": "d e f", "label": "no"}]


def test_classes_are_those_of_the_training_data(tokenizer: Tokenizer) -> None:
    task = Classify().resolve(Given(train=tuple(LABELLED)), tokenizer, PLAIN)
    assert (task.classes, task.n_labels, task.segments) == (("no", "yes"), 2, 0)
    numbers = [{"text": "a", "label": str(i)} for i in (10, 9, 2)]
    assert Classify().resolve(Given(train=tuple(numbers)), tokenizer, PLAIN).classes == ("2", "9", "10")
    kept = Classify(classes=("yes", "no")).resolve(Given(train=tuple(LABELLED)), tokenizer, TYPED)
    assert (kept.classes, kept.segments) == (("yes", "no"), 2)


def test_a_batch_of_texts_and_classes(tokenizer: Tokenizer) -> None:
    found = batch(Classify(classes=("no", "yes")), LABELLED, tokenizer)
    assert found.inputs["ids"].shape == (3, 5) and "token_types" not in found.inputs
    rows = {tuple(ids[:n].tolist()): y for ids, n, y in zip(
        found.inputs["ids"], found.inputs["layout"].lengths, found.labels.tolist(), strict=True
    )}  # fmt: skip
    expected = {(2, *tokenizer.encode(e["text"]), 3): int(e["label"] == "yes") for e in LABELLED}
    assert rows == expected
    assert (found.tokens, found.slots, found.counts) == (12, 15, {"loss": 3})


def test_the_first_token_sees_all_where_the_model_has_such_tokens(tokenizer: Tokenizer) -> None:
    task = Classify(classes=("0", "1"))
    examples: list[Example] = [{"text": "a b", "label": 0}, {"text": "b", "label": 1}]
    assert batch(task, examples, tokenizer).inputs["layout"].roles is None
    layout = batch(task.with_global_tokens(), examples, tokenizer).inputs["layout"]
    assert layout.n_global == 1 and (layout.roles == Role.GLOBAL).nonzero().tolist() == [[0, 0], [1, 0]]
    assert Classify(global_tokens="none").with_global_tokens().global_tokens == "none"


def test_a_pair_is_one_row_with_types_where_the_model_has_them(tokenizer: Tokenizer) -> None:
    example = {"text": "a b", "pair": "c", "label": "x"}
    found = batch(Classify(classes=("x", "y"), segments=2), [example], tokenizer)
    assert found.inputs["ids"].tolist() == [[2, *tokenizer.encode("a b"), 3, *tokenizer.encode("c"), 3]]
    assert found.inputs["token_types"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert [*Classify().texts(example)] == ["a b", "c"]


def test_long_texts_are_cut_or_skipped(tokenizer: Tokenizer) -> None:
    example = {"text": WORDS, "label": "x"}
    cut, skip = (Classify(classes=("x", "y"), longest=6, over_long=how) for how in ("cut", "skip"))
    made = cut.item(example, tokenizer, chance())
    assert not isinstance(made, Skipped) and made.arrays["ids"].shape == (6,) and made.cut  # type: ignore[attr-defined]
    assert skip.item(example, tokenizer, chance()) == "over-long"


@pytest.mark.parametrize(
    ("label", "said", "reason"),
    [
        ("noo", "the class 'noo' is not in the training data; did you mean 'no'", "of a class unseen in training"),
        (0.5, "the label is 0.5, a float; a class is a text or a whole number", "whose label is no class"),
        ([1], r"the label is \[1\], a list", "whose label is no class"),
    ],
)
def test_a_label_that_is_none_is_refused_by_its_place_or_counted(
    label: Any, said: str, reason: str, tokenizer: Tokenizer
) -> None:
    example = {"text": "a", "label": label, "where": "'x.csv', line 7"}
    task = Classify(classes=("no", "yes"))
    with pytest.raises(ValueError, match=f"'x.csv', line 7: {said}") as error:
        task.item(example, tokenizer, chance(False))
    assert "task.on_error=skip" in str(error.value)
    assert task.replace(on_error="skip").item(example, tokenizer, chance(False)) == reason


def test_one_class_is_nothing_to_tell_apart(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="only the class 'x', and there is nothing to tell apart"):
        Classify().resolve(Given(train=({"text": "a", "label": "x"},)), tokenizer, PLAIN)
    with pytest.raises(ValueError, match="there is no label; name the column that holds it"):
        Classify().resolve(Given(train=({"text": "a"},)), tokenizer, PLAIN)
    with pytest.raises(ValueError, match=r"there is a score and no label; task=regress learns scores$"):
        Classify().resolve(Given(train=({"text": "a", "score": 3.5},)), tokenizer, PLAIN)


def test_many_decimals_are_no_classes(tokenizer: Tokenizer) -> None:
    stars = tuple({"text": "a", "label": f"{i / 2}"} for i in range(10))
    assert len(Classify().resolve(Given(train=stars), tokenizer, PLAIN).classes) == 10
    scores = tuple({"text": "a", "label": f"{i / 7:.3f}"} for i in range(40))
    with pytest.raises(ValueError, match=r"40 numbers such as '0.000', which are hardly classes.* task=regress"):
        Classify().resolve(Given(train=scores), tokenizer, PLAIN)


SCORED = [{"text": "a", "pair": "b c", "score": "1"}, {"text": "d", "pair": "e", "score": 4.0}]


def test_numbers_are_learned_in_units_of_their_spread(tokenizer: Tokenizer) -> None:
    task = Regress().resolve(Given(train=tuple(SCORED)), tokenizer, PLAIN)
    assert (task.center, task.spread, task.n_labels) == (2.5, 1.5, 1)
    found = batch(task, SCORED, tokenizer)
    assert sorted(found.labels.tolist()) == [-1, 1] and found.labels.dtype.is_floating_point
    assert [task.score(y) for y in sorted(found.labels.tolist())] == [1, 4]


@pytest.mark.parametrize(
    ("score", "said"),
    [("five", "'five', which is no number"), ("nan", "no number"), (7, "outside 0.0 … 5.0"), (True, "True")],
)
def test_a_score_that_is_none_is_refused_or_counted(score: Any, said: str, tokenizer: Tokenizer) -> None:
    example = {"text": "a", "pair": "b", "score": score, "where": "x"}
    for task in (Regress(low=0, high=5), Similarity(low=0, high=5)):
        with pytest.raises(ValueError, match=said):
            task.item(example, tokenizer, chance())
        assert isinstance(task.replace(on_error="skip").item(example, tokenizer, chance()), Skipped)


def test_both_texts_of_a_pair_are_rows_apart(tokenizer: Tokenizer) -> None:
    task = Similarity().resolve(Given(train=tuple(SCORED)), tokenizer, TYPED)
    assert (task.low, task.high, task.n_labels) == (1, 4, None)
    found = batch(task, SCORED, tokenizer)
    assert found.inputs["ids"].shape[0] == 4 and sorted(found.labels.tolist()) == [0, 1]
    for example, rows in zip(found.texts, found.targets["rows"].tolist(), strict=True):
        for name, row in zip(("text", "pair"), rows, strict=True):
            n = found.inputs["layout"].lengths[row]
            assert found.inputs["ids"][row][1 : n - 1].tolist() == tokenizer.encode(example[name])


def test_pairs_without_scores_belong_together_and_a_text_to_itself(tokenizer: Tokenizer) -> None:
    examples = [{"text": "a b"}, {"text": "c d", "pair": "e"}]
    task = Similarity().resolve(Given(train=tuple(examples)), tokenizer, PLAIN)
    found = batch(task, examples, tokenizer)
    assert found.labels is None and found.counts == {"loss": 2}
    rows = found.targets["rows"][[e["text"] for e in found.texts].index("a b")]
    assert found.inputs["ids"][rows[0]].tolist() == found.inputs["ids"][rows[1]].tolist()
    with pytest.raises(ValueError, match="chooses pairs by their score, and these data have none"):
        Similarity(positive=3).resolve(Given(train=tuple(examples)), tokenizer, PLAIN)


def test_only_what_is_alike_enough_is_trained_on_as_belonging_together(tokenizer: Tokenizer) -> None:
    task = Similarity(positive=3).resolve(Given(train=tuple(SCORED)), tokenizer, PLAIN)
    assert [isinstance(i, Skipped) for i in task.items(SCORED, tokenizer, chance(True))] == [True, False]
    assert not any(isinstance(i, Skipped) for i in task.items(SCORED, tokenizer, chance(False)))


CHOICES = [
    {"text": "a", "choices": ["b", "c d e"], "answer": 1},
    {"text": "a b", "choices": ["b", "c", "d"], "answer": 0},
]


def test_candidates_are_rows_and_as_many_as_there_are(tokenizer: Tokenizer) -> None:
    found = batch(Choice(), CHOICES, tokenizer)
    assert found.inputs["ids"].shape[0] == 5 and found.counts == {"loss": 2}
    for example, rows, label in zip(found.texts, found.targets["rows"].tolist(), found.labels.tolist(), strict=True):
        own = [row for row in rows if row >= 0]
        assert len(own) == len(example["choices"]) and label == example["answer"]
        for row, candidate in zip(own, example["choices"], strict=True):
            n = found.inputs["layout"].lengths[row]
            ids = [2, *tokenizer.encode(example["text"]), 3, *tokenizer.encode(candidate), 3]
            assert found.inputs["ids"][row][:n].tolist() == ids
    assert sorted({row for rows in found.targets["rows"].tolist() for row in rows} - {-1}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("answer", "said"), [(2, "the answer is 2, and there are 2 candidates"), ("z", "the answer is 'z'")]
)
def test_an_answer_that_is_no_candidate(answer: Any, said: str, tokenizer: Tokenizer) -> None:
    example = {"text": "a", "choices": ["b", "c"], "answer": answer}
    with pytest.raises(ValueError, match=said):
        Choice().item(example, tokenizer, chance())
    assert Choice(on_error="skip").item(example, tokenizer, chance()) == "whose answer is no candidate"


def test_batches_are_no_larger_than_they_may_be(tokenizer: Tokenizer) -> None:
    source = Given(train=tuple(CHOICES) * 40)
    with stream(source, tokenizer, Batching(tokens=64, workers=0), seq2seq=False, task=Choice(), epochs=1) as batches:
        sizes = [b.slots for b in batches]
    assert len(sizes) > 20 and max(sizes) <= 64


def test_what_is_shown_names_the_class(tokenizer: Tokenizer) -> None:
    task = Classify(classes=("no", "yes"), segments=2)
    lines = dict(task.preview(batch(task, [LABELLED[1]], tokenizer), 0, tokenizer))
    assert lines["label"] == "yes" and "c" in lines["ids"] and set(lines) == {"ids", "token_types", "label"}


def test_a_file_says_where(tokenizer: Tokenizer, tmp_path: Any) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "v.csv").write_text("text,label\na,x\nb,z\n")
    paths = {"path": tmp_path / "t.csv", "validation_path": tmp_path / "v.csv", "test_path": tmp_path / "v.csv"}
    source = Labelled(**{name: str(path) for name, path in paths.items()})
    task = Classify().resolve(source, tokenizer, PLAIN)
    with pytest.raises(ValueError, match=r"v.csv', line 3: the class 'z' is not in the training data"):
        next(stream(source, tokenizer, Batching(workers=0), seq2seq=False, task=task, split="test"))
    skipping = stream(
        source, tokenizer, Batching(workers=0), seq2seq=False, task=task.replace(on_error="skip"), split="test"
    )
    assert next(skipping).labels.tolist() == [0]  # type: ignore[union-attr]
    assert "1 of a class unseen in training" in str(skipping.report)
