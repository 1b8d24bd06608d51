"""Checks of optimizers and schedules pass for qkv's own and find wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.testing import check
from qkv.training.optimizers import Optimizer
from qkv.training.optimizers.schedules import Schedule


class FixedRateStep(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(0.1 * weight.grad)


class FixedRate(Optimizer, kind="mutant-fixed-rate"):
    """Ignores the learning rate of its groups, and with it every schedule."""

    def make(self, groups: Any, model: Any) -> torch.optim.Optimizer:
        return FixedRateStep(groups, {"lr": self.lr})


class ForgetfulStep(torch.optim.Optimizer):
    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, {"lr": lr})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(group["lr"] / self.steps * weight.grad)


class Forgetful(Optimizer, kind="mutant-forgetful"):
    """Counts its steps outside `state_dict`."""

    def make(self, groups: Any, model: Any) -> torch.optim.Optimizer:
        return ForgetfulStep(groups, self.lr)


class Falling(Schedule, kind="mutant-falling"):
    """Falls below 0."""

    def factor(self, step: int, total: float | None = None, spent: float = 0.0) -> float:
        return 1 - step / 100


@pytest.mark.parametrize("kind", ["adamw", "muon", "adafactor"])
def test_own_optimizers_pass(kind: str) -> None:
    check(Optimizer.from_dict({"kind": kind})).raise_for_failures()


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_own_schedules_pass(kind: str) -> None:
    check(Schedule.from_dict({"kind": kind})).raise_for_failures()


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (FixedRate(), "learning rate of groups", "a step moves weights though `lr` of every group is 0"),
        (Forgetful(), "resumed = uninterrupted", "state is kept elsewhere"),
        (Falling(), "factors", "has to be finite and not negative"),
    ],
)
def test_wrong_parts_fail(part: Any, failure: str, reason: str) -> None:
    (failed,) = check(part).failures
    assert failed.name == failure and reason in failed.reason
