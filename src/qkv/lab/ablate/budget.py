"""Give the variants of an ablation equal budgets: optimizer steps, tokens, FLOPs or, if asked, time."""

from __future__ import annotations

from typing import Any

from ...runs.recipes.recipe import Recipe
from ..costs.training import TrainingCosts
from .ablation import Budget


def equalized(recipe: Recipe, budget: Budget, baseline: Recipe, cost: TrainingCosts, base: TrainingCosts) -> Recipe:
    """The recipe of a variant with the budget of the baseline.

    steps:  all train by their own `max_steps` and `max_epochs`, which are the same unless a variant changes them.
    tokens, flops: `max_steps` is such that all train on as many tokens, or with as many FLOPs, as the baseline.
    time:   all train for `max_time`, whatever else this machine does.

    Only `time` keeps limits in time: with other budgets, `max_time` is removed and a schedule in time becomes one in
    steps. Early stopping is removed.

    cost, base: costs of a batch of this variant, and of the baseline.
    Raises ValueError if the recipe lacks the limit that the budget needs.
    """
    training = recipe.training
    if budget == "time":
        if training.max_time is None:
            raise ValueError("--budget time needs a time for each run; give training.max_time=10m")
        changes: dict[str, Any] = {"max_steps": None, "max_epochs": None}
        return _with_training(recipe, {**changes, **_schedule_unit(recipe, "time")})
    if training.max_steps is None and training.max_epochs is None:
        raise ValueError(f"--budget {budget} needs a number of steps; give training.max_steps=N, or --budget time")
    changes = {"max_time": None, **_schedule_unit(recipe, "steps")}
    if budget in ("tokens", "flops"):
        changes["max_steps"] = _steps(budget, baseline, recipe, base, cost)
        changes["max_epochs"] = None
    return _with_training(recipe, changes)


def _steps(budget: Budget, baseline: Recipe, recipe: Recipe, base: TrainingCosts, own: TrainingCosts) -> int:
    """Steps with which a variant takes as many tokens or FLOPs as the baseline."""
    steps = baseline.training.max_steps
    if steps is None:
        raise ValueError(f"--budget {budget} needs a number of steps; give training.max_steps=N")
    per_batch = (base.shape.tokens, own.shape.tokens) if budget == "tokens" else (base.flops, own.flops)
    total = steps * baseline.training.accumulate * per_batch[0]
    return max(1, round(total / (recipe.training.accumulate * per_batch[1])))


def _schedule_unit(recipe: Recipe, unit: str) -> dict[str, Any]:
    schedule = recipe.training.schedule
    return {"schedule.unit": unit} if "unit" in type(schedule).model_fields else {}


def _with_training(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    return recipe.model_copy(update={"training": recipe.training.replace({"patience": None, **changes})})
