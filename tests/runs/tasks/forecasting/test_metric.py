"""Errors of forecasts are of the values before normalization."""

from __future__ import annotations

import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.forecasting.metric import ForecastMetric


def test_errors_are_of_the_values_before_normalization() -> None:
    metric = ForecastMetric()
    about = ({"scale": 2.0, "mean": 5.0, "column": "a", "where": "rows 1 to 5"},)
    inputs = {"ids": torch.tensor([[[[0.0, 1.0]]]])}
    metric.update(torch.tensor([[1.0, 2.0]]), Batch(inputs, torch.tensor([[0.0, 0.0]]), texts=about))
    found = {name: one.value for name, one in metric.compute().items()}
    assert found == {"mse": (4 + 16) / 2, "mae": (2 + 4) / 2, "last_value_mse": 4.0}
    (sample,) = metric.samples(3)
    assert sample["picture"] == {"kind": "forecast", "past": [5, 7], "truth": [5, 5], "made": [7, 9]}
    metric.update(torch.tensor([[0.0, 1.0]]), Batch(inputs, torch.tensor([[0.0, 0.0]]), texts=about))
    extremes = metric.extremes()
    assert extremes is not None and [one["score"] for one in extremes.best + extremes.worst] == [2, 10]
