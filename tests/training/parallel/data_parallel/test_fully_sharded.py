"""What a rank of ZeRO 3 holds, counted in live storages, beside the planner's formula."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import pytest
import torch
from fast_subset import fast
from live_bytes import LiveBytes

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import Ranks
from qkv.nn.cost.plan.execution import QKV, QKV_FP32
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.rank_memory import memory
from qkv.nn.cost.plan.work import work
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.objective import NextToken
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.settings import Training
from qkv.training.step import Stepper

pytestmark = pytest.mark.xdist_group("ranks")
TOKENS = 8  # so few that activations are small beside the weights


class Held(NamedTuple):
    """Bytes between steps, and the most in a step."""

    kept: int
    peak: int


def spec() -> Any:
    return qkv.preset("gpt2", vocab_size=64, d_model=128, n_layers=6, n_heads=4, max_positions=TOKENS, dropout=0.0)


def hold(ranks: Ranks, precision: str) -> Held:
    value = Scale.from_dict({"shard": 2})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = qkv.build(spec(), seed=0).train()
    training = Training.from_dict(
        {"precision": precision, "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}}
    )
    stepper = Stepper(model, NextToken(), training, ranks, team.distribute(model))
    ids = torch.randint(64, (1, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    inputs = {"ids": ids[:, :-1].contiguous(), "layout": Layout.full(TOKENS)}
    batch = Batch(inputs, labels=ids[:, 1:].contiguous(), counts={"loss": TOKENS}, tokens=TOKENS)
    stepper.take([batch], lr=1e-4)
    gc.collect()
    known = [*model_tensors(model).values(), *optimizer_tensors(stepper.optimizer).values()]
    with LiveBytes(*known) as live:
        kept = live.now()
        stepper.take([batch], lr=1e-4)
    return Held(kept, live.peak)


@pytest.mark.parametrize("precision", fast(["bf16", "fp16", "fp32"], "bf16"))
def test_a_rank_holds_what_the_formula_says(two: Any, precision: str) -> None:
    planned = memory(
        work("gpt2", spec(), TOKENS), RankLayout(shard=2, zero=3), QKV_FP32 if precision == "fp32" else QKV
    )
    for held in two.run(hold, precision):
        assert held.kept == pytest.approx(planned.weights + planned.optimizer, rel=0.05)
        assert held.peak == pytest.approx(planned.total, rel=0.05)
