"""Read the axes of a study (`--vary KEY=VALUE,VALUE`) and combine their values to variants."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ...core.spec import brief, nearest, short
from ...runs.recipes.recipe import Recipe
from ...runs.recipes.sizes import sizes_of
from ...runs.recipes.synonyms import key_in_ours

_OPEN, _CLOSE, _QUOTES = "[{(", "]})", "\"'"
_LONGEST = 60  # characters of a variant's folder


@dataclass(frozen=True)
class GridAxis:
    """A key of the recipe and the values that it takes, each as it is written in a setting `key=value`."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> GridAxis:
        """Read `training.optimizer.lr=1e-3,3e-3`. Commas within brackets and quotes belong to a value."""
        key, equals, values = text.partition("=")
        key, split = key.strip(), split_values(values)
        if not equals or not all(key.split(".")) or not all(split):
            raise ValueError(
                f"--vary {short(text)} is not an axis; write --vary KEY=VALUE,VALUE, such as training.optimizer.lr=1e-3,3e-3"
            )
        if (twice := next((value for i, value in enumerate(split) if value in split[:i]), None)) is not None:
            raise ValueError(f"--vary {short(key)} has the value {short(twice)} twice; leave one out")
        return cls(key, tuple(split))

    @classmethod
    def of(cls, key: str, values: object) -> GridAxis:
        """The axis of a key and a list of values in a recipe's file."""
        if not isinstance(values, list) or not values:
            raise ValueError(f"ablate.vary.{key} is a list of values, not {brief(values)}")
        return cls(key, tuple(map(as_text, values)))

    def settings(self) -> list[str]:
        return [f"{self.key}={value}" for value in self.values]


def as_text(value: object) -> str:
    """A value as it is written in a setting."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def split_values(text: str) -> list[str]:
    """Split at the commas that are outside of brackets and quotes."""
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _OPEN + _CLOSE:
            depth += 1 if character in _OPEN else -1
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values]


def in_full(axis: GridAxis, recipe: Recipe) -> GridAxis:
    """The axis with its key in full, see `full_key`."""
    return GridAxis(full_key(axis.key, recipe, "--vary"), axis.values)


def full_key(key: str, recipe: Recipe, option: str) -> str:
    """A key as a recipe spells it: `decoder.position`, a path into the model's spec, and `n_heads`, a size of its preset,
    are `model.decoder.position` and `model.n_heads`. `option` is named in messages.

    Raises ValueError for a key that neither the recipe nor its model has.
    """
    key = key_in_ours(key, recipe.to_dict(), Recipe)
    first = key.split(".")[0]
    sizes = sizes_of(recipe.model.preset) if recipe.model.preset else ()
    of_model = [*type(recipe.spec()).model_fields, *sizes]
    if key == "seed":
        raise ValueError(
            f"{option} seed is not possible: all are trained with the same seeds; give --seeds N to qkv ablate, or seed=N"
        )
    if first in Recipe.model_fields:
        return key
    if first == "*" or first in of_model:
        return f"model.{key}"
    raise ValueError(
        f"{option} {short(key)}: there is no {brief(first)}; {nearest(first, [*Recipe.model_fields, *of_model])}"
    )


def grid(axes: Sequence[GridAxis], sample: int | None = None) -> list[tuple[str, ...]]:
    """The settings of every combination of values, or of `sample` of them, always the same ones."""
    combined = list(product(*(axis.settings() for axis in axes)))
    if sample is None or not axes:
        return combined if axes else []
    if sample >= len(combined):
        raise ValueError(f"--random {sample} is not less than the {len(combined)} variants of the grid; leave it out")
    chosen = sorted(random.Random(0).sample(range(len(combined)), sample))
    return [combined[i] for i in chosen]


def one_at_a_time(axes: Sequence[GridAxis]) -> list[tuple[str, ...]]:
    """The settings of variants that change a single key each."""
    return [(setting,) for axis in axes for setting in axis.settings()]


def labels(variants: Iterable[Sequence[str]]) -> list[str]:
    """A short description of each variant: its settings, with the last part of a key if that is clear."""
    variants = list(variants)
    keys = list(dict.fromkeys(setting.partition("=")[0] for settings in variants for setting in settings))
    short = {key: _shortest(key, keys) for key in keys}
    return [", ".join(_labelled(setting, short) for setting in settings) for settings in variants]


def _labelled(setting: str, short: Mapping[str, str]) -> str:
    key, _, value = setting.partition("=")
    return f"{short[key]}={value}"


def _shortest(key: str, keys: Sequence[str]) -> str:
    """The last parts of a key, as many as tell it from the other keys; all if another key ends in it."""
    parts = key.split(".")
    ends = (".".join(parts[-n:]) for n in range(1, len(parts) + 1))
    others = [f".{other}" for other in keys if other != key]
    return next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), key)


def folders(names: Iterable[str]) -> list[str]:
    """A folder for each variant: its description in letters, digits, `-`, `_` and `.`, with a number if two are
    alike."""
    result: list[str] = []
    for name in names:
        plain = re.sub(r"[^\w.]+", "-", name).strip("-.")[:_LONGEST] or "variant"
        number, folder = 2, plain
        while folder in result:
            number, folder = number + 1, f"{plain}-{number}"
        result.append(folder)
    return result
