"""A snapshot of a module holds until something that a description could depend on changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from qkv.nn.models.fused_step.snapshot import Snapshot


def module() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))


def _move(m: nn.Sequential) -> None:
    m[0].weight.data = m[0].weight.data.clone()


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "a weight moves": _move,
    "a weight is replaced": lambda m: setattr(m[0], "weight", nn.Parameter(torch.zeros(3, 2))),
    "a buffer is replaced": lambda m: setattr(m[1][1], "running_mean", torch.zeros(3)),
    "a module is replaced": lambda m: m[1].__setitem__(0, nn.Linear(3, 3)),
    "a module is added": lambda m: m[1].append(nn.ReLU()),
    "a setting changes": lambda m: setattr(m[1][1], "eps", 0.5),
    "a method is replaced": lambda m: setattr(m[1][0], "forward", lambda x: x),
    "training begins": lambda m: m.train(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_module_no_longer_matches_its_snapshot(change: Callable[[nn.Sequential], object]) -> None:
    own = module().eval()
    snapshot = Snapshot(own)
    assert snapshot.holds()
    change(own)
    assert not snapshot.holds()


def test_values_and_modes_do_not_change_a_snapshot() -> None:
    own = module().eval()
    snapshot = Snapshot(own)
    with torch.no_grad():
        own[0].weight.zero_()  # in its place
    own.train().eval()
    assert snapshot.holds()
