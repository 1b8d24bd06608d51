"""The storage of a study, which Optuna reads."""

from __future__ import annotations

import optuna

from qkv.lab.tune.storage import _pruner
from qkv.runs.recipes.recipe import Recipe


def test_pruners_begin_with_the_first_evaluation() -> None:
    recipe = Recipe.load("localise", ["training.eval_every=50", "training.max_steps=400"])
    hyperband = _pruner(optuna, recipe, "hyperband")
    assert (hyperband._min_resource, hyperband._max_resource) == (50, 400)
    assert isinstance(_pruner(optuna, recipe, "none"), optuna.pruners.NopPruner)
