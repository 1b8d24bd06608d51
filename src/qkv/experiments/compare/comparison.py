"""A comparison as a value: a recipe, its variants, and what is measured of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from ...core import yamls
from ...core.spec import Spec
from ...recipes import overrides
from ...recipes.recipe import COMPARE, MEASURE, Recipe, override, tree
from . import (  # noqa: F401  (their kinds)
    by_length,
    complexity,
)
from .measures import Measure


class Comparison(Spec):
    """recipe:   the tree of a recipe, the same for all.
    variants: by name, settings such as `{model.position: alibi}` that make a recipe of it.
    measure:  what is drawn of them.

    In YAML it is a recipe with two more keys: `compare`, the variants, and `measure`.
    """

    recipe: dict[str, Any]
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    measure: Measure

    @model_validator(mode="after")
    def _names_are_folders(self) -> Self:
        for name in self.variants:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"compare.{name}: a variant's name is its folder's; use letters, digits, - and _")
        return self

    @classmethod
    def load(cls, name: str | Path, settings: Iterable[str] = ()) -> Self | None:
        """The comparison in a recipe's file, with settings applied to all variants; None where it compares nothing.

        A setting `compare.NAME=null` leaves a variant out.
        """
        whole = override(tree(name), settings)
        if not whole.get(COMPARE):
            return None
        variants = {name: changes or {} for name, changes in whole[COMPARE].items() if changes is not None}
        rest = {key: value for key, value in whole.items() if key not in (COMPARE, MEASURE)}
        return cls.from_dict({"recipe": rest, "variants": variants, "measure": whole.get(MEASURE)})

    @property
    def name(self) -> str:
        return str(self.recipe.get("name"))

    def variant(self, name: str) -> Recipe:
        """One variant's recipe. Raises ValueError, naming the variant, where its settings don't make one."""
        made = self.recipe
        for key, value in self.variants[name].items():
            made = overrides.put(made, key, value)
        try:
            recipe = Recipe.from_tree({**made, "name": f"{self.name}-{name}"})
            recipe.spec()
            return recipe
        except ValueError as error:
            raise ValueError(f"compare.{name}: {error}") from None

    def to_yaml(self) -> str:
        """As `load` reads it."""
        return yamls.dump({**self.recipe, COMPARE: self.variants, MEASURE: self.measure.to_dict()})
