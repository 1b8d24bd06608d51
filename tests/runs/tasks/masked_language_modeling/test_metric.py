"""Accuracy of masked tokens and of sentence pairs, counted by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.runs.tasks.masked_language_modeling.metric import NEXT, MaskedTokenMetric

WORDS = train(Word(mask="[MASK]"), ["the cat sat"])


def test_masked_tokens_and_pairs_are_counted_and_shown() -> None:
    the, cat, sat = WORDS.encode("the cat sat", control=False)
    mask = WORDS.mask_id
    ids = torch.tensor([[the, mask, sat], [mask, cat, mask]])
    labels = torch.tensor([[IGNORE, cat, IGNORE], [the, IGNORE, sat]])
    said = torch.tensor([[the, cat, sat], [sat, cat, sat]])  # one of three wrong
    model: Any = SimpleNamespace(
        hidden=lambda **inputs: torch.nn.functional.one_hot(said, WORDS.vocab_size).float(),
        head=lambda hidden: hidden,
        classification_head=lambda hidden, layout: torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    )
    batch = Batch({"ids": ids, "layout": Layout.full(3)}, labels, {"loss": 3}, targets={NEXT: torch.tensor([1, 0])})
    metric = MaskedTokenMetric(WORDS)
    metric.evaluate(model, batch)
    found = metric.compute()
    assert found["masked_accuracy"].value == pytest.approx(2 / 3) and found["sentence_accuracy"].value == 0.5
    first, second = metric.samples(2)
    assert (first["source"], first["output"], first["target"]) == ("the [MASK] sat", "the cat sat", "the cat sat")
    assert second["output"].split() == ["sat", "cat", "sat"]
