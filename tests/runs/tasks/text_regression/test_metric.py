"""Correlations and samples of text regression."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.text_regression.metric import NumberMetric


@pytest.mark.parametrize(
    ("truths", "shown"),
    [
        ([8.994e-4, 1.427e-5], ["0.00090", "0.00001"]),
        ([1.001, 1.009], ["1.0010", "1.0090"]),
        ([3.0, 3.0], ["3.00", "3.00"]),
        ([0.0, 50_000.0], ["0.00", "50000.00"]),
    ],
)
def test_scores_are_shown_with_places_for_their_range(truths: list[float], shown: list[str]) -> None:
    metric = NumberMetric(lambda x: x)
    metric.update(torch.tensor([[x] for x in truths]), Batch({}, torch.tensor(truths), texts=({"text": "a"},) * 2))
    assert [one["target"] for one in metric.samples(2)] == [one["output"] for one in metric.samples(2)] == shown


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
