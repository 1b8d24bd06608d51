"""Token accuracy and the entropy of labels, and generated samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.core.batch import IGNORE, Batch
from qkv.runs.tasks.tokens import GeneratedTextMetric, TokenMetric, entropy


class Reader(nn.Module):
    """A language model whose hidden states are its logits."""

    def hidden(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(ids, 4).float()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def test_accuracy_and_entropy_are_of_the_labels() -> None:
    metric = TokenMetric()
    for labels in ([0, 1, IGNORE], [1, 1, 2]):
        metric.evaluate(Reader(), Batch({"ids": torch.tensor([[0, 1, 3]])}, torch.tensor([labels])))
    found = metric.compute()
    assert metric.count == 5 and found["accuracy"].value == pytest.approx(3 / 5)
    shares = np.array([1, 3, 1]) / 5
    assert found["unigram_entropy"].value == pytest.approx(-(shares * np.log(shares)).sum())
    assert TokenMetric().compute() == {}


def test_the_entropy_of_equal_counts_is_the_logarithm_of_their_number() -> None:
    assert entropy(np.array([3, 0, 3, 3])) == pytest.approx(math.log(3))


class Shown(GeneratedTextMetric):
    def can_show(self, batch: Batch) -> bool:
        return batch.rows > 1

    def generate(self, model: Any, batch: Batch, count: int) -> list[dict[str, Any]]:
        return [{"source": str(row), "output": ""} for row in range(count)]


def test_samples_are_of_the_first_batch_that_can_be_shown() -> None:
    metric = Shown()
    assert metric.samples(3) == []
    for rows in (1, 2, 3):
        ids = torch.zeros(rows, 2, dtype=torch.long)
        metric.evaluate(Reader(), Batch({"ids": ids}, ids, {"loss": 1}))
    assert [one["source"] for one in metric.samples(9)] == ["0", "1"] and len(metric.samples(1)) == 1
