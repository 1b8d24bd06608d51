"""Checks of optimizers and learning-rate schedules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import nn

from ..training.optimizers import Optimizer
from ..training.optimizers.schedules import Schedule

STEPS = 200


def optimizer_checks(optimizer: Optimizer) -> dict[str, Callable[[], None]]:
    return {
        "steps move weights": lambda: check_moves(optimizer),
        "learning rate of groups": lambda: check_learning_rate(optimizer),
        "resumed = uninterrupted": lambda: check_resumes(optimizer),
    }


def _network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def _step(network: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    network(x).square().sum().backward()
    optimizer.step()


def _weights(network: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in network.parameters()])


def check_moves(spec: Optimizer) -> None:
    network = _network()
    before, optimizer = _weights(network), spec.build(network)
    for seed in range(3):
        _step(network, optimizer, seed)
    after = _weights(network)
    assert after.isfinite().all(), "weights are not finite after three steps"
    assert not torch.equal(before, after), "three steps do not move the weights"


def check_learning_rate(spec: Optimizer) -> None:
    """Schedules set `lr` of the groups before each step: at 0 nothing moves."""
    network = _network()
    before, optimizer = _weights(network), spec.build(network)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    _step(network, optimizer, 0)
    assert torch.equal(before, _weights(network)), "a step moves weights though `lr` of every group is 0"


def check_resumes(spec: Optimizer) -> None:
    network = _network()
    optimizer = spec.build(network)
    for seed in range(2):
        _step(network, optimizer, seed)
    resumed = copy.deepcopy(network)
    other = spec.build(resumed)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    _step(network, optimizer, 2)
    _step(resumed, other, 2)
    same = torch.equal(_weights(network), _weights(resumed))
    assert same, "a step after loading `state_dict` differs from the uninterrupted one: state is kept elsewhere"


def check_factors(schedule: Schedule) -> None:
    for step in range(1, STEPS + 1):
        factor = schedule.factor(step, STEPS, step / STEPS)
        odd = not math.isfinite(factor) or factor < 0
        assert not odd, f"factor({step}) is {factor}; it has to be finite and not negative"
        assert factor == schedule.factor(step, STEPS, step / STEPS), f"factor({step}) differs from call to call"
