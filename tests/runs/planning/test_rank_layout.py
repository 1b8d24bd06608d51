"""Layouts of a run: the simplest that is fast enough is chosen and explained; what can't fit is refused with its bytes."""

import pytest
import torch

from qkv.core.ranks import ALONE
from qkv.nn.cost.accelerators import Accelerator
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.plan.network import Link, Network, measured
from qkv.runs.planning import rank_layout
from qkv.runs.planning.rank_layout import laid_out
from qkv.runs.recipes.recipe import Recipe
from qkv.training.parallel.scale import Scale

SHAPE = BatchShape(32, 64, 64)
LOOPBACK = Network("measured", 2, Link(2e9, 1e-4), Link(2e9, 1e-4), gpus=False)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    cpu = Accelerator("this", {"fp32": 1e11, "bf16": 5e10}, 1e10, 8e9)
    monkeypatch.setattr(rank_layout, "_device", lambda device, here, precision: cpu)
    return Recipe.load("localise", ["scale=auto", "training.precision=fp32"])


def chosen(recipe: Recipe, ranks: int) -> tuple[Scale, list[str]]:
    return laid_out(recipe, recipe.model.spec(1500), SHAPE, ranks, torch.device("cpu"), LOOPBACK)[:2]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_small_model_gets_the_simplest_layout_and_reasons(recipe: Recipe, ranks: int) -> None:
    scale, (layout, predicted, following) = chosen(recipe, ranks)
    assert scale.sizes(ranks).tensor == scale.sizes(ranks).pipeline == 1 and scale.stage <= 1
    assert f"on {ranks} ranks: the " in layout and "that fit into memory" in layout
    assert "a step, bound by" in predicted and "of 8.0 GB (weights" in predicted
    assert following.startswith("Next best: ")


def test_a_layout_that_does_not_fit_is_refused_with_its_bytes(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Accelerator("this", {"fp32": 1e11}, 1e10, 0.31e9)
    monkeypatch.setattr(rank_layout, "_device", lambda device, here, precision: tiny)
    with pytest.raises(
        ValueError,
        match=r"data 2 of localise takes \d+ MB on a rank \(weights .*, and a rank of this machine has 310 MB",
    ):
        chosen(recipe.replace(scale=Scale()), 2)
    with pytest.raises(ValueError, match=r"localise does not fit on 2 ranks of this machine: .* takes .* of 310 MB"):
        chosen(recipe, 2)


def test_a_network_is_measured_by_sums() -> None:
    class Two:
        rank, size = 0, 2
        barrier = staticmethod(ALONE.barrier)
        max = staticmethod(ALONE.max)
        sum = staticmethod(lambda x: x + x)

    found = measured(Two())  # type: ignore[arg-type]
    assert not found.gpus and found.inside == found.between
    assert found.inside.bandwidth > 1e6 and 0 < found.inside.latency < 1
