"""Precision and recall of replaced tokens, counted by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.runs.tasks.replaced_token_detection.metric import ReplacedTokenMetric

WORDS = train(Word(), ["a b c d"])


def test_flags_are_compared_with_replacements() -> None:
    ids = torch.tensor([WORDS.encode("a b c d", control=False)])
    replaced = torch.tensor([[True, False, True, False]])
    corrupted = SimpleNamespace(ids=ids.flip(1), replaced=replaced)
    labels = torch.where(torch.tensor([[True, False, True, False]]), ids, IGNORE)
    generator = SimpleNamespace(
        hidden=lambda **inputs: torch.nn.functional.one_hot(ids, WORDS.vocab_size).float(), head=lambda hidden: hidden
    )

    class Detector:
        head = SimpleNamespace(generator=generator, replace=lambda inputs, labels: corrupted)

        def __call__(self, **inputs: Any) -> torch.Tensor:
            return torch.tensor([[[1.0], [2.0], [3.0], [-1.0]]])

    metric, model = ReplacedTokenMetric(WORDS), Detector()
    assert metric.compute() == {}
    metric.evaluate(model, Batch({"ids": ids, "layout": Layout.full(4)}, labels))  # type: ignore[arg-type]
    found = {name: value.value for name, value in metric.compute().items()}
    assert found["precision"] == pytest.approx(2 / 3) and found["recall"] == 1.0
    assert found["replaced"] == 0.5 and found["masked_accuracy"] == 1.0
    (sample,) = metric.samples(1)
    assert "⟦d⟧ ⟦c⟧ ⟦b⟧ a" in sample.values() and "⟦d⟧ c ⟦b⟧ a" in sample.values()
