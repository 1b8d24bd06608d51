"""Check the data of all runs before a study begins."""

from __future__ import annotations

from collections.abc import Mapping

from ...runs.recipes.recipe import Recipe
from ...runs.train.admission import first_examples


def check_data(recipes: Mapping[str, Recipe]) -> None:
    """Read the first example of each split of every recipe, once for recipes with the same data.

    Raises ValueError, beginning with the name of the recipe if there are several, if a split can't be read or is empty.
    """
    seen: set[tuple[str, str | None]] = set()
    for name, recipe in recipes.items():
        key = (recipe.data.to_json(), None if recipe.task is None else recipe.task.to_json())
        if key in seen:
            continue
        try:
            first_examples(recipe)
        except ValueError as error:
            raise error if not seen else ValueError(f"{name}: {error}") from None
        seen.add(key)
