"""Checks of metrics pass for qkv's own and find wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_recipes import RECIPES, prepared
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.core.metrics.base import Metric, MetricValue
from qkv.testing import Report, check


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


@pytest.mark.parametrize("task", RECIPES)
def test_own_metrics_pass(task: str) -> None:
    recipe, tokenizer, model, batches = prepared(task)
    assert recipe.task is not None
    report = check(recipe.task.metric(tokenizer), model=model, batches=batches)
    report.raise_for_failures()
    assert outcomes(report)["nothing measured"] == outcomes(report)["NaN stays NaN"] == "passed"


class Right(Metric):
    """The share of right classes, which the wrong metrics below change in one place."""

    def __init__(self) -> None:
        self.right: list[float] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        self.right += (outputs.argmax(-1) == batch.labels).float().tolist()

    def compute(self) -> dict[str, MetricValue]:
        return {"right": MetricValue(self.value())}

    def value(self) -> float:
        return sum(self.right) / len(self.right) if self.right else float("nan")

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [{"source": "x", "output": str(right)} for right in self.right[:count]]


class MeanOfMeans(Right):
    """Averages the averages of batches of unequal sizes."""

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        self.right.append(float((outputs.argmax(-1) == batch.labels).float().mean()))


class Last(Right):
    """Weighs the latest example most."""

    def value(self) -> float:
        return sum(0.5**i * right for i, right in enumerate(reversed(self.right))) if self.right else float("nan")


class Zero(Right):
    """0 if nothing was measured."""

    def value(self) -> float:
        return super().value() if self.right else 0.0


class Crash(Right):
    """Divides by the number of examples, whatever it is."""

    def value(self) -> float:
        return sum(self.right) / len(self.right)


class Blind(Right):
    """Does not look for NaN."""

    def check_nan(self, outputs: Any) -> None:
        pass


class Number(Right):
    """A number without MetricValue."""

    def compute(self) -> Any:
        return {"right": self.value()}

    def results(self) -> Any:
        return self.compute()


class Talkative(Right):
    """Gives every sample."""

    def samples(self, count: int) -> list[dict[str, Any]]:
        return super().samples(1000)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, ids: Tensor) -> Tensor:
        return ids @ self.weight


def batches() -> list[Batch]:
    random = torch.Generator().manual_seed(0)
    sizes = (5, 3, 2)
    labels = [torch.randint(3, (n,), generator=random) for n in sizes]
    inputs = [torch.rand(n, 3, generator=random) for n in sizes]
    return [Batch({"ids": x}, y, {"loss": len(y)}) for x, y in zip(inputs, labels, strict=True)]


def test_the_right_one_passes() -> None:
    assert set(outcomes(check(Right(), model=Classifier(), batches=batches())).values()) == {"passed"}


def test_a_metric_alone_is_checked_with_nothing_to_measure() -> None:
    report = check(Right())
    assert outcomes(report)["nothing measured"] == "passed" and outcomes(report)["any order"] == "not checked"


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (MeanOfMeans(), "parts = whole", "'right' differs when each example is a separate batch"),
        (Last(), "any order", "'right' differs when batches come in another order"),
        (Zero(), "nothing measured", "'right' is 0.0 though nothing was measured"),
        (Crash(), "nothing measured", "ZeroDivisionError"),
        (Blind(), "NaN stays NaN", "though all outputs are NaN"),
        (Number(), "values", "`compute` returns a MetricValue"),
        (Talkative(), "samples", "`samples(3)` gives 10 samples"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Metric) else "",
)
def test_wrong_metrics_fail(part: Metric, failure: str, reason: str) -> None:
    reasons = {failed.name: failed.reason for failed in check(part, model=Classifier(), batches=batches()).failures}
    assert reason in reasons.get(failure, ""), reasons
