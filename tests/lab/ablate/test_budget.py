"""Equal budgets of steps, FLOPs or time."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.ablate import study
from qkv.lab.ablate.ablation import Ablation


def test_equal_flops_give_the_smaller_model_more_steps(text_recipe: Path) -> None:
    settings = ["training.max_steps=50"]
    ablation = Ablation.load(text_recipe, settings, vary=["model.d_model=16,32"], seeds=1, budget="flops")
    plan = study.make_plan(ablation, "cpu")
    small, large = plan.forecasts.values()
    assert small.flops is not None and large.flops is not None and small.flops == pytest.approx(large.flops, rel=0.05)
    steps = [recipe.training.max_steps for recipe in plan.recipes.values()]
    assert steps[0] is not None and steps[1] is not None and steps[0] > steps[1]


def test_a_time_budget_needs_a_time(text_recipe: Path) -> None:
    ablation = Ablation.load(text_recipe, parts=["norm"], seeds=1, budget="time")
    with pytest.raises(ValueError, match=r"give training\.max_time=10m"):
        study.make_plan(ablation, "cpu")
    timed = Ablation.load(text_recipe, ["training.max_time=10m"], parts=["norm"], seeds=1, budget="time")
    recipes = study.make_plan(timed, "cpu").recipes.values()
    assert all(recipe.training.max_steps is None and recipe.training.max_time == 600 for recipe in recipes)
