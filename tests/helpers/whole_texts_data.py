"""Examples, a source and batches for tests of tasks on whole texts; imported by path."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Example, Source, Split, Table
from qkv.data.task import RandomContext
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.nn.layers.embedding import Embedding
from qkv.runs.tasks.whole_texts import Sentences

WORDS = "a b c d e f g h"


PLAIN, TYPED = Embedding(), Embedding(token_types=2)


class Given(Source, kind="given-test"):
    """Examples as they are, and for validation and test others."""

    train: tuple[Example, ...]
    others: tuple[Example, ...] = ()

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.train if split == "train" else self.others


def chance(training: bool = True) -> RandomContext:
    return RandomContext(np.random.default_rng(0), training)


def batch(task: Sentences, examples: list[Example], tokenizer: Tokenizer, split: Split = "train") -> Any:
    source = Given(train=tuple(examples), others=tuple(examples))
    batching = Batching(tokens=4096, workers=0, shuffle=False)
    with stream(source, tokenizer, batching, seq2seq=False, task=task, split=split) as batches:
        return next(batches)


LABELLED = [{"text": "a b", "label": "no"}, {"text": "c", "label": "yes"}, {"text": "d e f", "label": "no"}]


SCORED = [{"text": "a", "pair": "b c", "score": "1"}, {"text": "d", "pair": "e", "score": 4.0}]


CHOICES = [
    {"text": "a", "choices": ["b", "c d e"], "answer": 1},
    {"text": "a b", "choices": ["b", "c", "d"], "answer": 0},
]
