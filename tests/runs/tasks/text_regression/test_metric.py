"""Correlations and samples of text regression."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.text_regression.metric import NumberMetric


def test_numbers_are_shown_as_they_are_meant() -> None:
    metric = NumberMetric(lambda x: 2 * x + 1)
    metric.update(
        torch.tensor([[0.5], [2.0]]),
        Batch({}, torch.tensor([0.0, 1.0]), texts=({"text": "a", "pair": "b"}, {"text": "c"})),
    )
    assert metric.samples(2)[0] == {"source": "a | b", "target": "1.00", "output": "2.00", "graded": True}
    assert metric.compute()["spearman"].value == pytest.approx(1)
    extremes = metric.extremes()  # by the error in the units of the data
    assert extremes is not None and [(one["source"], one["score"]) for one in extremes.best] == [("a | b", 1.0)]
    assert [(one["source"], one["score"]) for one in extremes.worst] == [("c", 2.0)]
