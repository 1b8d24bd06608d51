"""What the planner predicts that a rank keeps (weights, optimizer state) beside what the ranks of a training keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_subset import fast

import qkv
from qkv.core.ranks import Ranks
from qkv.nn.cost.plan.execution import QKV_FP32
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.rank_memory import of_stage
from qkv.nn.cost.plan.work import work
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.objective import NextToken
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.settings import Training
from qkv.training.step import Stepper

pytestmark = pytest.mark.xdist_group("ranks")
LAYOUTS: dict[str, dict[str, Any]] = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "pipeline": {"pipeline": 2},
}
FOURS: dict[str, dict[str, Any]] = {
    "tensor, pipeline": {"tensor": 2, "pipeline": 2},
    "zero 3, tensor": {"tensor": 2, "shard": 2, "zero": 3},
    "zero 1, pipeline": {"pipeline": 2, "shard": 2, "zero": 1},
}


def spec() -> Any:
    sizes = {"vocab_size": 512, "d_model": 64, "n_layers": 4, "n_heads": 4, "max_positions": 32, "dropout": 0.0}
    return qkv.preset("gpt2", **sizes)


def kept(ranks: Ranks, scale: dict[str, Any]) -> tuple[int, int, int]:
    """The stage of this rank, and the bytes of its weights and of its optimizer's state, when it has one."""
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = qkv.build(spec(), seed=0)
    training = Training.from_dict({"precision": "fp32", "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}})
    stepper = Stepper(model, NextToken(), training, ranks, team.distribute(model))
    for group in stepper.optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    stepper.optimizer.step()
    weights, state = model_tensors(stepper.strategy.model), optimizer_tensors(stepper.optimizer)
    sizes = [sum(t.numel() * t.element_size() for t in tensors.values()) for tensors in (weights, state)]
    return team.mesh.index("pipeline"), sizes[0], sizes[1]


def holds(pool: Any, scale: dict[str, Any]) -> None:
    value = Scale.from_dict(scale)
    results = pool.run(kept, scale)
    layout = RankLayout(*value.sizes(len(results)), zero=value.stage)
    model = work("gpt2", spec(), 32)
    for stage in range(layout.pipeline):
        predicted = of_stage(model, layout, QKV_FP32, stage)
        ranks = [(weights, state) for mine, weights, state in results if mine == stage]
        for name, i, wanted in (("weights", 0, predicted.weights), ("optimizer", 1, predicted.optimizer)):
            assert max(sizes[i] for sizes in ranks) == pytest.approx(wanted, rel=0.05), (stage, name)


@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 1", "zero 3", "tensor", "pipeline"))
def test_a_rank_keeps_what_is_predicted(two: Any, layout: str) -> None:
    holds(two, LAYOUTS[layout])


@pytest.mark.slow
@pytest.mark.parametrize("layout", FOURS)
def test_a_rank_of_two_axes_keeps_what_is_predicted(four: Any, layout: str) -> None:
    holds(four, FOURS[layout])
