"""Texts and batches for tests of pre-training tasks; imported by path."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.core.batch import Batch
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Source, Split, Table
from qkv.data.task import Task
from qkv.nn.layers.embedding import Embedding

WORDS = "red green blue old new big small cat dog bird tree house runs sees eats finds".split()  # noqa: SIM905


def prose(seed: int, sentences: int) -> str:
    random = np.random.default_rng(seed)
    return " ".join(" ".join(random.choice(WORDS, random.integers(3, 7))) + "." for _ in range(sentences))


class Prose(Source, kind="prose-test"):
    """Texts of some sentences; with `more`, one of a single sentence and one of a single token besides."""

    more: bool = False

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        texts = [prose(i, 3 + i % 9) for i in range(24)] + ["red cat.", "cat"] * self.more
        return [{"text": text} for text in texts]


def opened(
    task: Task | dict[str, Any], tokenizer: Any, split: Split = "train", more: bool = False, **settings: Any
) -> Any:
    task = Task.from_dict(task) if isinstance(task, dict) else task
    source = Prose(more=more)
    task = task.resolve(source, tokenizer, Embedding(token_types=2))
    batching = Batching.from_dict({"context": 32, "tokens": 256, "workers": 0, **settings})
    return stream(source, tokenizer, batching, seq2seq=False, task=task, split=split, epochs=1)


def rows_of(batches: list[Batch], name: str = "ids") -> list[list[int]]:
    where = {"ids": "layout", "target": "target_layout", "labels": None}[name]
    found = []
    for batch in batches:
        value = batch.labels if name == "labels" else batch.inputs[name]
        layout = batch.inputs[where or ("target_layout" if "target" in batch.inputs else "layout")]
        assert value is not None
        found += [row[real].tolist() for row, real in zip(value, layout.valid.expand(value.shape), strict=True)]
    return found
