"""The sizes of a preset (`d_model`, `n_layers` …): their defaults, and the check of given values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from .. import families
from ..core.spec import Spec, brief
from .synonyms import elsewhere

MOST_LAYERS, LARGEST = 4096, 2**31 - 1


def sizes_of(preset: str) -> dict[str, Any]:
    """The arguments of a preset's function, with the preset's values or the function's defaults."""
    factory, named = families.presets()[preset]
    sizes = {name: parameter.default for name, parameter in inspect.signature(factory).parameters.items()} | named
    return {name: _plain(size) for name, size in sizes.items()}


def _plain(size: Any) -> Any:
    """The value as YAML has it."""
    return size.to_dict() if isinstance(size, Spec) else list(size) if isinstance(size, tuple) else size


def check_sizes(preset: str, sizes: Mapping[str, Any]) -> None:
    """Raise ValueError if a size has another library's name, or a value of the wrong type or range."""
    presets = families.presets()
    if preset not in presets:
        return
    taken = inspect.signature(presets[preset][0]).parameters
    for name, value in sizes.items():
        if name in taken:
            _check(name, value, str(taken[name].annotation))
        elif (here := elsewhere(name)) is not None:
            raise ValueError(f"there is no 'model.{name}'; {here}")


def _check(name: str, value: Any, annotation: str) -> None:
    """Check a value against the annotation of its parameter, such as `int | None`."""
    types = set(annotation.split(" | "))
    if value is None and ("None" in types or name == "max_positions"):
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    least, most = (1, MOST_LAYERS) if name.endswith("layers") else (0, LARGEST)
    if types <= {"int", "None"} and not (whole and least <= value <= most):
        raise ValueError(f"model.{name} is a whole number from {least} to {most:,}, not {brief(value)}")
    if types == {"bool"} and not isinstance(value, bool):
        raise ValueError(f"model.{name} is true or false, not {brief(value)}")
    if types <= {"float", "None"} and not ((whole or isinstance(value, float)) and math.isfinite(value)):
        raise ValueError(f"model.{name} is a number, not {brief(value)}")
