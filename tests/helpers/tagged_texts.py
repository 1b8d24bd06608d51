"""Words with tags, and a tokenizer that splits them."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.data import train_tokenizer
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.runs.tasks.tagging.task import Tag

WORDS = ["the", "cat", "sat", "on", "a", "mat", "in", "Loka", "Meri", "when", "Tavekan", "wrote", ",", "again", ","]


KINDS = [
    {"kind": "bpe", "vocab_size": 300},
    {"kind": "wordpiece", "vocab_size": 60},
    {"kind": "word"},
    {"kind": "char"},
]


CHANCE = RandomContext(np.random.default_rng(0), False)


def tokenizer(kind: dict[str, Any]) -> Tokenizer:
    from qkv.data.tokenizers.training.spec import TokenizerSpec

    return train_tokenizer(TokenizerSpec.from_dict(kind), [" ".join(WORDS)] * 3)


ALL = {kind["kind"]: tokenizer(kind) for kind in KINDS}


def example(words: list[str]) -> dict[str, Any]:
    return {"text": " ".join(words), "words": words, "tags": ["X" if word[0].isupper() else "O" for word in words]}


def items(task: Tag, one: dict[str, Any], name: str = "bpe", training: bool = False) -> list[Item]:
    made = task.items([one], ALL[name], RandomContext(CHANCE.generator, training))
    assert all(isinstance(item, Item) for item in made)
    return made  # type: ignore[return-value]
