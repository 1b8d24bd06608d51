"""The recipes of the package."""

from __future__ import annotations

import pytest

from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize("name", sorted(packaged()))
def test_packaged_recipes_are_whole_and_documented(name: str) -> None:
    recipe = Recipe.load(name)
    assert recipe.name == name
    assert recipe.description.endswith(".")
    assert packaged()[name].startswith(f"# {name}: ")
    assert recipe.model.spec(recipe.vocab_size).n_parameters > 0
