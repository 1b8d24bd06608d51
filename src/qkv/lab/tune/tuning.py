"""`Tuning`: a recipe, the space of settings to search, and how to search it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field

from ...core import several, yamls
from ...core.spec import Spec, brief
from ...runs.recipes.overrides import warn_of_overruled
from ...runs.recipes.recipe import BESIDE, TUNE, Recipe, override, tree
from ...runs.recipes.synonyms import settings_in_ours
from ..ablate.ablation import BASELINE, Budget, Variant, content_of, recipe_of, removed
from ..ablate.budget import equalized
from ..ablate.grid import full_key
from .space import Dimension

TRIALS = 20
Pruning = Literal["median", "hyperband", "none"]
Sampling = Literal["tpe", "random"]


class Search(Spec):
    """The key `tune` of a recipe's file: what `qkv tune` searches if the command line doesn't say.

    space:   by key, a range `low..high` or `low..high, log`, or a list of values.
    trials:  trainings.
    sampler: `tpe` (tree-structured Parzen estimator) or `random`.
    pruner:  which trials stop early: `median`, `hyperband` or `none`.
    """

    space: dict[str, Any] = Field(default_factory=dict)
    trials: Annotated[int, Field(ge=2)] = TRIALS
    sampler: Sampling = "tpe"
    pruner: Pruning = "median"


class Tuning(Spec):
    """A recipe's tree, the space, and the search; `trials` may grow when a study is resumed."""

    recipe: dict[str, Any]
    space: tuple[Dimension, ...]
    trials: int = TRIALS
    sampler: Sampling = "tpe"
    pruner: Pruning = "median"

    @classmethod
    def load(
        cls,
        name: str | Path,
        settings: Iterable[str] = (),
        *,
        space: str | Sequence[str] = (),
        trials: int | None = None,
        sampler: str | None = None,
        pruner: str | None = None,
    ) -> Self:
        """Load a recipe and the space to search; what is not given is taken from the recipe's `tune`.

        Raises ValueError for an empty space, a key that does not exist, a value that the recipe can't have, and a dimension
        that changes nothing.
        """
        data = tree(name)
        settings = settings_in_ours(data, settings, Recipe)
        data = override(data, settings)
        search = Search.from_dict(data.get(TUNE) or {})
        shared = {key: value for key, value in data.items() if key not in BESIDE}
        recipe = Recipe.from_tree(shared)
        given = [Dimension.parse(text) for text in several.texts(space, "space")]
        given = given or [Dimension.of(*item) for item in search.space.items()]
        if not given:
            raise ValueError(
                f"the recipe {recipe.name} declares no space to search; give --space KEY=LOW..HIGH or "
                "--space KEY=VALUE,VALUE"
            )
        dimensions = [one.replace({"key": full_key(one.key, recipe, "--space")}) for one in given]
        _check(shared, dimensions)
        warn_of_overruled(settings, {"": [one.key for one in dimensions]}, "the space that is searched")
        warn_of_overruled(settings, {"": removed(_budget(recipe))}, "a tuning, whose trials have equal steps or time,")
        return cls(
            recipe=shared,
            space=tuple(dimensions),
            trials=trials or search.trials,
            sampler=cast(Sampling, _one_of(sampler or search.sampler, ("tpe", "random"), "--sampler")),
            pruner=cast(Pruning, _one_of(pruner or search.pruner, ("median", "hyperband", "none"), "--pruner")),
        )

    @property
    def name(self) -> str:
        return str(self.recipe.get("name"))

    @property
    def base(self) -> Recipe:
        """The recipe as it is."""
        return Recipe.from_tree(self.recipe)

    def trial(self, number: int, settings: Sequence[str]) -> Recipe:
        """The recipe of a trial: without early stopping, and without limits in time if there is a number of steps. Raises
        ValueError if the settings don't fit together."""
        recipe = recipe_of(self.recipe, Variant(label=f"trial {number}", settings=tuple(settings)))
        equal = equalized(recipe, _budget(recipe), recipe, cast(Any, None), cast(Any, None))
        return equal.model_copy(update={"name": f"{self.name}-trial-{number}"})

    def to_yaml(self) -> str:
        return yamls.dump(self.to_dict())


def _budget(recipe: Recipe) -> Budget:
    """What is equal for all trials: their steps, if the recipe limits these."""
    limited = recipe.training.max_steps is not None or recipe.training.max_epochs is not None
    return "steps" if limited else "time"


def _check(shared: dict[str, Any], space: Sequence[Dimension]) -> None:
    """Check each dimension alone. Raises ValueError for a key that is given twice, a value that the recipe can't have, and a
    dimension that changes nothing."""
    keys = [one.key for one in space]
    for i, one in enumerate(space):
        if one.key in keys[:i]:
            raise ValueError(f"--space {one.key} is given twice; leave one out")
        recipes = [recipe_of(shared, Variant(label=f"--space {end}", settings=(end,))) for end in one.ends()]
        if len({content_of(recipe) for recipe in recipes}) == 1:
            raise ValueError(f"--space {one.key} changes nothing in the recipe; leave it out")
    if recipe_of(shared, Variant(label=BASELINE)).training.eval_every is None:
        raise ValueError("trials are compared by evaluations during training; give training.eval_every=N")


def _one_of(value: str, allowed: tuple[str, ...], option: str) -> str:
    if value not in allowed:
        raise ValueError(f"{option} is {', '.join(allowed[:-1])} or {allowed[-1]}, not {brief(value)}")
    return value
