"""Mixed precision on several ranks: one loss scale for all, and the losses of one rank within the precision's bounds."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, NamedTuple

import pytest
import torch
from fast_subset import fast
from same_steps import _prepared
from torch import nn

from qkv.core.ranks import ALONE, Ranks
from qkv.data.loader.stream import stream
from qkv.models.build import build
from qkv.parallel.scale import Scale
from qkv.parallel.team import Team
from qkv.training.step import Stepper

pytestmark = pytest.mark.xdist_group("ranks")
FOUR_LAYERS = ("training.accumulate=2", "model.n_layers=4")
LAYOUTS: dict[str, dict[str, Any]] = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "1f1b": {"pipeline": 2},
    "gpipe": {"pipeline": 2, "pipeline_schedule": "gpipe"},
    "interleaved-1f1b": {"pipeline": 2, "pipeline_schedule": "interleaved-1f1b"},
    "zb-h1": {"pipeline": 2, "pipeline_schedule": "zb-h1"},
}


def _overflow(module: nn.Module, inputs: Any, output: Any) -> None:
    """Make the gradient of a block's output infinite."""
    output.register_hook(lambda gradient: gradient * float("inf"))


class Taken(NamedTuple):
    losses: list[float]
    norms: list[float]
    scales: list[float]


def take(ranks: Ranks, precision: str, scale: dict[str, Any], settings: tuple[str, ...], overflow: bool) -> Taken:
    """Take six steps. overflow: in the third one, the gradients of rank 1 overflow."""
    recipe, tokenizer, spec = _prepared("decoder", (*settings, f"training.precision={precision}"))
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = build(spec, seed=1).train()
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    batches = stream(
        recipe.data, tokenizer, recipe.batching.replace(pool=64, workers=0), seq2seq=False, seed=3, shard=team.shard
    )
    taken = Taken([], [], [])
    with batches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(6):
            overflows = overflow and step == 2 and ranks.rank == 1
            hooks = [block.register_forward_hook(_overflow) for block in model.decoder.blocks if overflows]
            done = stepper.take(list(itertools.islice(batches, recipe.training.accumulate)), lr=0.01)
            for hook in hooks:
                hook.remove()
            taken.losses.append(done.loss.item())
            taken.norms.append(done.grad_norm.item())
            taken.scales.append(0.0 if stepper.mixed.scaler is None else stepper.mixed.scaler.get_scale())
    return taken


def settings_of(layout: str) -> tuple[str, ...]:
    return FOUR_LAYERS if "pipeline" in LAYOUTS[layout] else ()


@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 1", "zero 3", "1f1b"))
def test_an_overflow_on_one_rank_halves_the_loss_scale_of_all(two: Any, layout: str) -> None:
    first, *others = two.run(take, "fp16", LAYOUTS[layout], settings_of(layout), True)
    assert first.scales == [65536.0, 65536.0, *[32768.0] * 4]
    assert all(other.scales == first.scales and other.losses == first.losses for other in others)


# What rounding of the weights and activations to 8 and 11 bits changes in six steps.
BOUNDS = {"bf16": 2e-2, "fp16": 4e-3}


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 3"))
def test_losses_are_those_of_one_rank_within_the_bounds_of_the_precision(two: Any, layout: str, precision: str) -> None:
    settings = settings_of(layout)
    one = take(ALONE, precision, {}, settings, False)
    for taken in two.run(take, precision, LAYOUTS[layout], settings, False):
        assert taken.losses == pytest.approx(one.losses, rel=BOUNDS[precision])
        assert taken.norms == pytest.approx(one.norms, rel=5 * BOUNDS[precision])
