"""What the planner predicts for the moments that are not steps, beside the bytes of live storages on two ranks."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from qkv.nn.cost.plan.rank_memory import FRAGMENTATION, memory, moments
from qkv.nn.cost.plan.work import work
from qkv.nn.models.build import outline
from qkv.training.checkpoints.checkpoint import MODEL, OPTIMIZER, Checkpoints
from qkv.training.checkpoints.state import TrainingState
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.logging.step_metrics import StepMetrics
from qkv.training.objective import NextToken
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.resume import restore, snapshot
from qkv.training.settings import Training
from qkv.training.step import Stepper

pytestmark = pytest.mark.xdist_group("ranks")
TOKENS = 8  # so few that activations are small beside the weights
ZERO3, IN_PARTS = "zero 3", "zero 3, evaluated in parts"
MUON = {"kind": "muon", "lr": 1e-4}
LAYOUTS: dict[str, dict[str, Any]] = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2, muon": {"shard": 2, "zero": 2},
    "tensor, muon": {"tensor": 2},
    ZERO3: {"shard": 2},
    IN_PARTS: {"shard": 2},
    "tensor": {"tensor": 2},
    "pipeline": {"pipeline": 2},
}
TOLERANCE = 0.1


def spec() -> Any:
    return qkv.preset("gpt2", vocab_size=64, d_model=128, n_layers=6, n_heads=4, max_positions=TOKENS, dropout=0.0)


def measured(
    ranks: Ranks, scale: dict[str, Any], in_parts: bool, settings: dict[str, Any], folder: str
) -> dict[str, int]:
    """The most bytes that were alive on this rank at each moment."""
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size), in_parts)
    training = Training.from_dict({"compile": False, **settings})
    found: dict[str, int] = {}
    with LiveBytes() as live:
        model, values = outline(spec(), seed=0)
        strategy = team.distribute(model, values)
        stepper = Stepper(model.train(), NextToken(), training, ranks, strategy)
    found["start"] = live.peak
    ids = torch.randint(64, (1, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    inputs = {"ids": ids[:, :-1].contiguous(), "layout": Layout.full(TOKENS)}
    stepper.take([Batch(inputs, labels=ids[:, 1:].contiguous(), counts={"loss": TOKENS}, tokens=TOKENS)], lr=1e-4)
    stepper.optimizer.zero_grad(set_to_none=True)
    state, meter, store = TrainingState(), StepMetrics(), Checkpoints(Path(folder), training.keep, ranks)
    files = strategy.files({MODEL: model_tensors(model)}, {OPTIMIZER: optimizer_tensors(stepper.optimizer)})
    store.begin(1, files, snapshot(state, stepper, training, meter, {}), False, False, False)
    store.finish()
    ranks.barrier()
    newest = store.newest()
    assert newest is not None
    del files
    gc.collect()

    def held() -> LiveBytes:
        return LiveBytes(*model_tensors(model).values(), *optimizer_tensors(stepper.optimizer).values())

    with held() as live:
        restore(newest, model, stepper, training, meter, None)
    found["resume"] = live.peak
    gc.collect()
    model.eval()
    with held() as live, torch.no_grad():
        strategy.gather()
        found["delivery"] = max(live.peak, live.now())
        model(**inputs)
    found["evaluation"] = live.peak
    strategy.scatter()
    return found


CASES = [(layout, precision) for precision in ("fp32", "bf16", "fp16") for layout in LAYOUTS]


@pytest.mark.parametrize("case", fast(CASES, ("zero 1", "fp32")), ids=", ".join)
def test_the_bytes_of_each_moment_are_as_predicted(two: Any, tmp_path: Path, case: tuple[str, str]) -> None:
    layout, precision = case
    scale = LAYOUTS[layout]
    sizes = Scale.from_dict(scale).sizes(2)
    planned, in_parts = RankLayout(*sizes, zero=Scale.from_dict(scale).stage), layout == IN_PARTS
    model = work("gpt2", spec(), TOKENS)
    optimizer = MUON if layout.endswith("muon") else {"kind": "adamw", "lr": 1e-4}
    layers, tables = Training.from_dict({"optimizer": optimizer}).optimizer.state_bytes
    how = replace(QKV_FP32 if precision == "fp32" else QKV, optimizer=layers, tables=tables)
    predicted = moments(model, planned, how, memory(model, planned, how), in_parts)
    settings = {"precision": precision, "optimizer": optimizer}
    ranks = two.run(measured, scale, in_parts, settings, str(tmp_path / "checkpoints"))
    for moment, needed in predicted.items():
        most = max(of_rank[moment] for of_rank in ranks)
        assert most == pytest.approx((needed - how.reserve) / FRAGMENTATION, rel=TOLERANCE), moment
