"""`Comparison`: a recipe, its variants, and the measures that compare them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from ...core import yamls
from ...core.spec import Spec
from ..recipes import overrides
from ..recipes.recipe import BESIDE, COMPARE, MEASURE, Recipe, override, tree
from ..recipes.synonyms import settings_in_ours
from .measures import Measure, Progress


class Comparison(Spec):
    """A recipe with variants to train, measure and plot together.

    recipe:   the tree of the recipe that all variants share.
    variants: by name, the settings that each changes, such as `{model.position: alibi}`.
    measure:  the measure to plot; by default the loss of the validation split against the seconds of training.

    In YAML, a comparison is a recipe with one or two more keys: `compare` (the variants) and `measure`.
    """

    recipe: dict[str, Any]
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    measure: Measure = Progress()

    @model_validator(mode="after")
    def _names_are_folders(self) -> Self:
        for name in self.variants:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"compare.{name}: a variant's name names its folder; use letters, digits, - and _")
        return self

    @classmethod
    def load(cls, name: str | Path, settings: Iterable[str] = ()) -> Self | None:
        """Load a comparison from a recipe's file and apply settings to all variants; None if the recipe has no variants.

        A setting `compare.NAME=null` leaves a variant out.
        """
        data = tree(name)
        settings = settings_in_ours(data, settings, Recipe)
        data = override(data, settings)
        if not data.get(COMPARE):
            return None
        variants = {name: changes or {} for name, changes in data[COMPARE].items() if changes is not None}
        shared = {key: value for key, value in data.items() if key not in BESIDE}
        own = {
            name: settings_in_ours(shared, [overrides.as_setting(*item) for item in changes.items()], Recipe)
            for name, changes in variants.items()
        }
        overrides.warn_of_overruled(settings, own, "a variant of the comparison")
        measure = {} if data.get(MEASURE) is None else {"measure": data[MEASURE]}
        return cls.from_dict({"recipe": shared, "variants": variants, **measure})

    @property
    def name(self) -> str:
        return str(self.recipe.get("name"))

    def variant(self, name: str) -> Recipe:
        """The recipe of a variant. Raises ValueError, naming the variant, if it is not valid."""
        settings = [overrides.as_setting(key, value) for key, value in self.variants[name].items()]
        try:
            recipe = Recipe.from_tree({**override(self.recipe, settings), "name": f"{self.name}-{name}"})
            recipe.spec()
            return recipe
        except ValueError as error:
            raise ValueError(f"compare.{name}: {error}") from None

    def to_yaml(self) -> str:
        """The YAML that `load` reads."""
        return yamls.dump({**self.recipe, COMPARE: self.variants, MEASURE: self.measure.to_dict()})
