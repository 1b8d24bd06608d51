"""`ScalingStudy`: a recipe, the budgets and sizes of its ladder, and the rule for learning rates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, field_validator

from ...core import yamls
from ...core.spec import Spec, brief
from ...io import families
from ...runs.recipes.overrides import warn_of_overruled
from ...runs.recipes.recipe import BESIDE, COMPARE, SCALING, Recipe, override, tree
from ...runs.recipes.sizes import sizes_of
from ...runs.recipes.synonyms import settings_in_ours

SIZES = 5  # of a ladder by default
OWN = ("training.max_steps", "training.max_epochs", "training.max_time", "training.patience", "training.eval_every")
"""Settings that all runs have from the study."""
STEP = 2 ** (
    1 / 3
)  # of the width from one default size to the next: about twice the parameters, as the depth grows too
MULTIPLE = 8  # of widths by default
_SIZE = re.compile(r"(\d+)x(\d+)")
_RULE = re.compile(r"width\^-(\d+(?:\.\d+)?)")


class LadderSize(NamedTuple):
    """Width and number of layers, written `64x2`."""

    d_model: int
    n_layers: int

    def __str__(self) -> str:
        return f"{self.d_model}x{self.n_layers}"


class Ladder(Spec):
    """The key `scaling` of a recipe: the runs of its scaling study.

    budgets:  FLOPs of training, each for every size.
    sizes:    width × layers of the models, such as `64x2`; by default five sizes up to the recipe's own.
    rate:     how the learning rate depends on the width: `width^-1`, `width^-0.5`, or `constant`.
    hold_out: `largest` leaves the runs of the largest model out of the fits, which then predict their losses; `none`.
    """

    budgets: tuple[float, ...] = Field(min_length=1)
    sizes: tuple[str, ...] | None = None
    rate: str = "width^-0.5"
    hold_out: Literal["largest", "none"] = "largest"

    @field_validator("budgets", "sizes", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str | int | float) else given

    @field_validator("budgets")
    @classmethod
    def _positive(cls, budgets: tuple[float, ...]) -> tuple[float, ...]:
        if not all(math.isfinite(budget) and budget > 0 for budget in budgets):
            raise ValueError(f"budgets are positive numbers of FLOPs such as 1e12, not {list(budgets)}")
        return tuple(sorted(set(budgets)))

    @field_validator("sizes")
    @classmethod
    def _readable(cls, sizes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for size in sizes or ():
            match = _SIZE.fullmatch(size)
            if match is None or "0" in match.groups():
                raise ValueError(f"a size is the width and the number of layers, such as 64x2, not {brief(size)}")
        return sizes

    @field_validator("rate")
    @classmethod
    def _known(cls, rate: str) -> str:
        if rate != "constant" and _RULE.fullmatch(rate) is None:
            raise ValueError(
                f"rate is constant, or a power of the width such as width^-1 or width^-0.5, not {brief(rate)}"
            )
        return rate

    @property
    def exponent(self) -> float:
        """p of lr ∝ width^-p."""
        match = _RULE.fullmatch(self.rate)
        return 0.0 if match is None else float(match[1])


class ScalingStudy(Spec):
    """A recipe and the ladder of its scaling study. In YAML it is a recipe with one more key, `scaling`."""

    recipe: dict[str, Any]
    scaling: Ladder

    @classmethod
    def load(cls, name: str | Path, settings: Iterable[str] = (), **ladder: Any) -> Self:
        """Load a recipe with its key `scaling`; `ladder` replaces fields of it.

        Raises ValueError if neither gives budgets.
        """
        data = tree(name)
        settings = settings_in_ours(data, settings, Recipe)
        data = override(data, settings)
        if data.get(COMPARE):
            raise ValueError(f"{name} is a comparison of variants; a scaling study takes a recipe without {COMPARE}")
        own = data.get(SCALING) or {}
        if not isinstance(own, dict):
            raise ValueError(f"the key {SCALING} of {name} is a mapping with budgets and sizes, not {brief(own)}")
        fields = {**own, **{key: value for key, value in ladder.items() if value is not None}}
        if "budgets" not in fields:
            raise ValueError(f"the recipe {name} has no budgets; give them as --budgets 1e12,2e12,4e12")
        recipe = {key: value for key, value in data.items() if key not in BESIDE}
        warn_of_overruled(settings, {"": OWN}, "a scaling study, which trains for its budgets of FLOPs,")
        return cls.from_dict({"recipe": recipe, SCALING: fields})

    @property
    def name(self) -> str:
        return str(self.recipe.get("name"))

    def to_yaml(self) -> str:
        """The YAML that `load` reads."""
        return yamls.dump({**self.recipe, SCALING: self.scaling.to_dict()})

    def own_sizes(self) -> dict[str, Any]:
        """The sizes of the recipe's own model. Raises ValueError for a model without width and depth to scale."""
        model = self.recipe.get("model")
        model = {"preset": model} if isinstance(model, str) else dict(model or {})
        preset = model.get("preset")
        if not isinstance(preset, str) or preset not in families.presets():
            raise ValueError("a scaling study trains models from scratch; the recipe's model must be a preset")
        sizes = {**sizes_of(preset), **{key: value for key, value in model.items() if key not in ("preset", "replace")}}
        if not isinstance(sizes.get("d_model"), int) or not isinstance(sizes.get("n_layers"), int):
            raise ValueError(
                f"the preset {preset} has no d_model and n_layers to scale; give model.d_model and "
                "model.n_layers, or choose a preset such as llama"
            )
        return sizes

    def sizes(self) -> list[LadderSize]:
        """The sizes of the ladder, the smallest first."""
        if self.scaling.sizes is not None:
            return sorted({LadderSize(*map(int, size.split("x"))) for size in self.scaling.sizes})
        own = self.own_sizes()
        width, depth = own["d_model"], own["n_layers"]
        factors = [STEP**-i for i in reversed(range(SIZES))]
        scaled = {
            LadderSize(max(MULTIPLE * round(width * f / MULTIPLE), MULTIPLE), max(round(depth * f), 1)) for f in factors
        }
        return sorted(scaled)

    def scaled(self, size: LadderSize) -> dict[str, int]:
        """The sizes of the recipe's model at another width and depth: heads stay as wide as in the recipe, and feed-forward
        layers in proportion to the width. Raises ValueError for a width that heads can't divide."""
        own, width = self.own_sizes(), size.d_model
        sizes = {"d_model": width, "n_layers": size.n_layers}
        heads = own.get("n_heads")
        if isinstance(heads, int):
            most = max(round(width * heads / own["d_model"]), 1)
            allowed = [n for n in range(1, most + 1) if width % n == 0 and width // n % 2 == 0]
            if not allowed:
                raise ValueError(
                    f"a width of {width} can't be divided among heads of even width; give another of --sizes"
                )
            sizes["n_heads"] = allowed[-1]
            groups = own.get("n_kv_heads")
            if isinstance(groups, int):
                most = max(sizes["n_heads"] * groups // heads, 1)
                sizes["n_kv_heads"] = max(n for n in range(1, most + 1) if sizes["n_heads"] % n == 0)
        if isinstance(own.get("d_ff"), int):
            sizes["d_ff"] = max(MULTIPLE * round(own["d_ff"] * width / own["d_model"] / MULTIPLE), MULTIPLE)
        return sizes
