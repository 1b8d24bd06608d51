"""The base class of metrics: what it measures without a subclass, and outputs with NaN."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.core.metrics.base import Metric, MetricValue, model_outputs


class Mean(Metric):
    def __init__(self) -> None:
        self.values: list[float] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        self.values += outputs.tolist()

    def compute(self) -> dict[str, MetricValue]:
        return {"mean": MetricValue(sum(self.values) / len(self.values))}


class Echo(nn.Module):
    calls = 0

    def forward(self, ids: Tensor) -> Any:
        self.calls += 1
        return ids


def test_the_base_class_measures_nothing_and_does_not_run_the_model() -> None:
    metric, model = Metric(), Echo()
    metric.evaluate(model, Batch({"ids": torch.ones(2)}))
    assert metric.results() == {} and metric.samples(3) == [] and model.calls == 0


def test_a_nan_in_any_batch_leaves_no_number() -> None:
    metric = Mean()
    for ids in ([1.0, 2.0], [3.0, 4.0]):
        metric.evaluate(Echo(), Batch({"ids": torch.tensor(ids)}))
    assert metric.results()["mean"].value == 2.5
    for _ in range(2):
        metric.evaluate(Echo(), Batch({"ids": torch.tensor([math.nan, 1.0])}))
    found = metric.results()["mean"]
    assert math.isnan(found.value) and found.details == "the model's outputs hold NaN, in 2 batches"


def test_outputs_are_on_the_cpu_in_fp32() -> None:
    found = model_outputs(Echo(), Batch({"ids": torch.ones(2, dtype=torch.bfloat16)}))
    assert found.dtype == torch.float32 and found.device.type == "cpu"
