"""The planner and the training accept the same layouts: checked on small models, on ranks that are not started."""

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, cast, get_args
from unittest.mock import patch

import pytest
import torch
from fast_subset import fast
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from qkv.core.ranks import ALONE
from qkv.io.families import preset
from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.layout import AXES, RankLayout, check
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.rules import ContextAttention, PipelineSchedule, TrainedBy, chunks_of
from qkv.nn.cost.plan.search import search
from qkv.nn.cost.plan.step import Machine
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.build import build
from qkv.runs.planning.rank_layout import scale_of
from qkv.training.objective import LabelObjective, Objective
from qkv.training.optimizers import Optimizer
from qkv.training.parallel.data_parallel.fully_sharded import FullySharded
from qkv.training.parallel.mesh import Mesh
from qkv.training.parallel.model_parallel.model import divided
from qkv.training.parallel.model_parallel.schedules import actions
from qkv.training.parallel.scale import Scale, Sizes
from qkv.training.parallel.world import World
from qkv.training.settings import Training
from qkv.training.step import Stepper
from qkv.training.strategy import Strategy

SCHEDULES = get_args(PipelineSchedule)
SIZES = {"d_model": 24, "d_ff": 48, "vocab_size": 40, "max_positions": 2048}
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"n_kv_heads": 2},
    "experts": {"decoder.blocks.*.feedforward": {"kind": "moe", "n_experts": 6, "top_k": 2, "d_ff": 16}},
    "linear": {"decoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 6, "pattern": {"kind": "causal"}}},
    "low rank": {"decoder.blocks.*.attention.low_rank": {"q": 3}},
    "normed together": {
        "decoder.blocks.*.attention": {"kind": "attention", "n_heads": 6, "qk_norm_over": "all", "qk_norm": "rmsnorm"}
    },
    "drops layers": {"decoder.drop_path": 0.1},
    "additive": {"decoder.blocks.*.attention.score": "additive"},
}


class Unstarted(World):
    """A group of ranks that are not there."""

    def __init__(self, size: int) -> None:
        self.size, self.rank, self.group = size, 0, None

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.size


class UnstartedMesh(Mesh):
    def group(self, *axes: Any) -> Any:
        return Unstarted(self.size(*axes))

    def neighbors(self, axis: Any, size: int) -> Any:
        return Unstarted(size)


def spec_of(name: str, layers: int, heads: int) -> ModelSpec:
    changes = dict(CHANGES[name])
    sizes = SIZES | {"n_layers": layers, "n_heads": heads}
    if "n_kv_heads" in changes:
        return preset("llama-3-8b", **sizes, **changes)
    return preset("gpt2", **sizes).replace(changes)


OPTIMIZERS = ("adagrad", "adafactor", "adamw", "adamw-8bit", "lion", "muon", "sgd")


def trained_by(optimizer: str, objective: str) -> TrainedBy:
    elementwise = Optimizer.from_dict({"kind": optimizer}).elementwise
    return TrainedBy(
        optimizer, elementwise, objective, isinstance(Objective.from_dict({"kind": objective}), LabelObjective)
    )


class Held(Strategy):
    """A strategy of a layout without other ranks, whose optimizer is checked as by its stage of ZeRO, and not made."""

    def __init__(self, model: nn.Module, layout: RankLayout) -> None:
        super().__init__(model, ALONE)
        self.stages, self.zero = layout.pipeline, layout.zero

    def optimizer(self, spec: Optimizer, dtype: torch.dtype | None = None) -> torch.optim.Optimizer:
        with patch.object(Optimizer, "freeze_parameters", side_effect=Reached):  # what follows the checks
            if self.zero == 3:
                return FullySharded.optimizer(cast(FullySharded, self), spec, dtype)
            return spec.build(self.model)


class Reached(Exception):
    """Nothing was refused."""


def trains(spec: ModelSpec, layout: RankLayout, by: TrainedBy, precision: str = "fp32") -> bool:
    """Whether the training's own checks accept a layout."""
    try:
        scale = Scale.from_dict(
            {axis: layout.size(axis) for axis in AXES}
            | {"zero": layout.zero, "pipeline_schedule": layout.schedule, "context_attention": layout.attention}
        )
        sizes = scale.sizes(layout.ranks)
        model = build(spec, device="cpu", initialized=False)
        divided(model, UnstartedMesh(Unstarted(sizes.ranks), sizes, torch.device("cpu")), scale)
        if layout.pipeline > 1:
            actions(layout.schedule, layout.microbatches, layout.pipeline, 0)
        training = Training.from_dict({"precision": precision, "optimizer": {"kind": by.optimizer}})
        with suppress(Reached):
            Stepper(model, Objective.from_dict({"kind": by.objective}), training, ALONE, Held(model, layout))
    except ValueError:
        return False
    return True


def plans(model: ModelWork, layout: RankLayout) -> bool:
    with suppress(ValueError):
        check(layout, model)
        return True
    return False


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(CHANGES)),
    layers=st.integers(1, 4),
    heads=st.sampled_from([4, 6]),
    sizes=st.tuples(*[st.sampled_from([1, 1, 1, 2, 3, 4])] * len(AXES)),
    zero=st.integers(0, 3),
    microbatches=st.integers(1, 6),
    schedule=st.sampled_from(SCHEDULES),
    attention=st.sampled_from(get_args(ContextAttention)),
    optimizer=st.sampled_from(OPTIMIZERS),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
    objective=st.sampled_from(["next-token", "next-token", "contrastive"]),
)
def test_the_planner_accepts_what_trains_and_nothing_else(
    name: str,
    layers: int,
    heads: int,
    sizes: tuple[int, ...],
    zero: int,
    microbatches: int,
    schedule: PipelineSchedule,
    attention: ContextAttention,
    optimizer: str,
    precision: str,
    objective: str,
) -> None:
    spec, by = spec_of(name, layers, heads), trained_by(optimizer, objective)
    layout = RankLayout(
        *sizes, zero=zero, microbatches=microbatches, schedule=schedule, chunks=chunks_of(schedule), attention=attention
    )
    model = replace(work(name, spec, 64), trained_by=by)
    assert plans(model, layout) == trains(spec, layout, by, precision), asdict(layout)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("objective", ["next-token", "contrastive"])
def test_every_layout_of_four_ranks_is_planned_if_it_trains(optimizer: str, objective: str) -> None:
    """Each stage of ZeRO and each other axis, with each optimizer and kind of objective."""
    spec, by = spec_of("experts", 4, 4), trained_by(optimizer, objective)
    model, seen = replace(work("experts", spec, 64), trained_by=by), set()
    for axis in AXES:
        for zero in (1, 2, 3) if axis == "shard" else (0,):
            layout = RankLayout(**{axis: 2, "zero": zero, "microbatches": 2})
            planned = plans(model, layout)
            assert planned == trains(spec, layout, by), asdict(layout)
            seen.add(planned)
    assert seen == ({True} if by.elementwise and by.single_pass else {True, False})


@pytest.mark.parametrize("name", fast(sorted(CHANGES), "plain", "experts", "linear", "drops layers"))
def test_what_the_search_proposes_trains(name: str) -> None:
    spec = spec_of(name, 4, 6)
    for hardware, joined in (("h100", None), ("m4", "loopback")):
        machine = Machine(KNOWN[hardware], network(joined, hardware), kernels(hardware), QKV)
        found = search(work(name, spec, 2048), machine, 8, 32)
        assert {one.layout.schedule for one in found} >= {"1f1b"}
        for one in found[:6] + found[-6:]:
            scale = scale_of(one.layout, Scale())
            assert scale.sizes(8) == Sizes(*(one.layout.size(axis) for axis in AXES))
            assert trains(spec, one.layout, TrainedBy())
