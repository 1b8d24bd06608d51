"""Runs that were trained for a moment."""

from __future__ import annotations

import pytest
from short_runs import SHORT, Train

from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A run of a recipe, cut short; the same one for the same settings."""
    made: dict[tuple[str, ...], Run] = {}

    def run(name: str, *settings: str) -> Run:
        if (name, *settings) not in made:
            out = tmp_path_factory.mktemp(name) / "run"
            train(Recipe.load(name, [*SHORT, *settings]), out, device="cpu")
            made[name, *settings] = load(out, device="cpu")
        return made[name, *settings]

    return run
