"""Samples of prefix language modeling: the model continues the prefix, which attends to itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout, Role
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.runs.tasks.prefix_language_modeling.metric import PrefixMetric

WORDS = train(Word(eos="</s>"), ["the cat sat down"])


def test_a_sample_continues_the_prefix_alone() -> None:
    the, cat, sat, down = WORDS.encode("the cat sat down", control=False)
    asked: list[Any] = []

    def generate(ids: Any, **options: Any) -> Any:
        asked.append((ids, options))
        return torch.tensor([[the, cat, down, down]])

    roles = torch.tensor([[Role.PREFIX, Role.PREFIX, 0, 0]])
    ids, labels = torch.tensor([[the, cat, sat, down]]), torch.tensor([[IGNORE, sat, down, IGNORE]])
    batch = Batch({"ids": ids, "layout": Layout.full(4).with_roles(roles)}, labels, {"loss": 2})
    (sample,) = PrefixMetric(WORDS).generate(SimpleNamespace(generate=generate), batch, 1)  # type: ignore[arg-type]
    assert sample == {"source": "the cat", "output": "down down", "target": "sat down"}
    ((prefix, options),) = asked
    assert prefix.tolist() == [[the, cat]] and (options["layout"].roles == Role.PREFIX).all()
    assert (options["eos_id"], options["max_new_tokens"]) == (WORDS.eos_id, 2)
