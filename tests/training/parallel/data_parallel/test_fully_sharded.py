"""What a rank of ZeRO 3 holds, counted in live storages, beside the planner's formula, and evaluations block by block."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fast_subset import fast
from live_bytes import LiveBytes
from rich.console import Console
from run_tiny import LANGUAGE_MODEL, TINY, write_text
from small_recipes import RECIPES as SMALL_RECIPES
from small_recipes import SMALL

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE, Ranks
from qkv.io.directories.build import build
from qkv.nn.cost.plan.execution import QKV, QKV_FP32
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.rank_memory import memory
from qkv.nn.cost.plan.work import work
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.finish import evaluator
from qkv.runs.train.prepare import read
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.objective import NextToken
from qkv.training.optimizers import SGD
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


def a_batch() -> Batch:
    ids = torch.randint(64, (1, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    inputs = {"ids": ids[:, :-1].contiguous(), "layout": Layout.full(TOKENS)}
    return Batch(inputs, labels=ids[:, 1:].contiguous(), counts={"loss": TOKENS}, tokens=TOKENS)


def hold(ranks: Ranks, precision: str) -> Held:
    value = Scale.from_dict({"shard": 2})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = qkv.build(spec(), seed=0).train()
    training = Training.from_dict(
        {"precision": precision, "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}}
    )
    stepper = Stepper(model, NextToken(), training, ranks, team.distribute(model))
    batch = a_batch()
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


PAIRS, TEXT = "pairs", "running text"
TASKS = ("tag", "segment", "caption", "music", "detect", "replaced-tokens", "span-corruption", "similarity")
RECIPES: dict[str, tuple[str, tuple[str, ...]]] = {
    PAIRS: ("reverse", (*TINY, "model.n_layers=2", "evaluation.examples=7", "evaluation.metrics=[exact-match,chrf]")),
    TEXT: ("lm", LANGUAGE_MODEL),
    **{task: (SMALL_RECIPES[task][0], (*SMALL, *SMALL_RECIPES[task][1])) for task in TASKS},
}


def evaluated(
    ranks: Ranks, name: str, settings: list[str], in_parts: bool, wide: bool, dtype: torch.dtype | None, out: str
) -> tuple[dict[str, float], list[Any]]:
    """The metrics and samples of an evaluation; `dtype` is that in which ranks gather parameters in a step."""
    value = Scale.from_dict({"shard": ranks.size})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size), in_parts)
    prepared = read(Recipe.load(name, settings), Path(out), team, False, Console(quiet=True))
    model = build(prepared.spec, dtype=torch.float64 if wide else torch.float32, seed=2)
    strategy = team.distribute(model)
    strategy.optimizer(SGD(momentum=0.0), dtype)
    strategy.prepare()
    model.eval()
    strategy.gather()
    with torch.no_grad():
        result = evaluator(prepared)(model, "validation", 7, samples=2, count=False)
    strategy.scatter()
    return result.metrics, result.samples


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (PAIRS, None),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in (TEXT, *TASKS)),
        pytest.param(PAIRS, torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("tag", torch.bfloat16, marks=pytest.mark.slow),
    ],
)
def test_an_evaluation_block_by_block_gives_what_one_rank_gives(
    two: Any, tmp_path: Path, name: str, dtype: torch.dtype | None
) -> None:
    recipe, settings = RECIPES[name]
    path, wide = str(write_text(tmp_path)), dtype is None and name in (PAIRS, TEXT, "tag")
    data = [setting.replace("TEXT", path) for setting in settings] + [f"data.path={path}"] * (name == TEXT)
    arguments = recipe, data, True, wide, dtype, str(tmp_path / "out")
    metrics, samples = evaluated(ALONE, *arguments)
    for of_rank, shown in two.run(evaluated, *arguments):
        assert of_rank == pytest.approx(metrics, rel=1e-9 if wide else 1e-5) and shown == samples


def steps_after(ranks: Ranks, precision: str, in_parts: bool) -> tuple[list[float], int, int]:
    """The losses of two steps with an evaluation before each; and the most bytes alive in the second evaluation beyond what
    the rank keeps, and those of all parameters."""
    value = Scale.from_dict({"shard": ranks.size})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size), in_parts)
    model = qkv.build(spec(), seed=0).train()
    whole = 4 * sum(p.numel() for p in model.parameters())
    training = Training.from_dict(
        {"precision": precision, "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}}
    )
    stepper = Stepper(model, NextToken(), training, ranks, team.distribute(model))
    batch, losses = a_batch(), []
    for _ in range(2):
        gc.collect()
        known = [*model_tensors(model).values(), *optimizer_tensors(stepper.optimizer).values()]
        model.eval()
        with LiveBytes(*known) as live:
            kept = live.now()
            stepper.strategy.gather()
            with torch.inference_mode():
                model(**batch.inputs)
            stepper.strategy.scatter()
        model.train()
        losses.append(stepper.take([batch], lr=1e-4).loss.item())
    return losses, live.peak - kept, whole


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_training_continues_after_an_evaluation_block_by_block_that_never_holds_the_model(
    two: Any, precision: str
) -> None:
    gathered, in_parts = two.run(steps_after, precision, False)[0], two.run(steps_after, precision, True)[0]
    assert in_parts[0] == gathered[0]
    most, whole = in_parts[1:]
    assert most < 0.7 * whole < gathered[1]
