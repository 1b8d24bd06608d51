"""Settings that remove a part of a model, such as its residual connections or its positions (`qkv ablate --drop`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.spec import brief, nearest
from ...runs.recipes.recipe import Recipe

_BLOCKS = "*.blocks.*"
PARTS: Mapping[str, Mapping[str, Any]] = {
    "residual": {f"{_BLOCKS}.residual": "none"},
    "norm": {f"{_BLOCKS}.norm": "none", "*.norm": "none"},
    "scale": {f"{_BLOCKS}.attention.scale": 1.0, f"{_BLOCKS}.cross.scale": 1.0},
    "position": {"*.position": "none"},
    "feedforward": {f"{_BLOCKS}.feedforward": "none"},
    "heads": {
        f"{_BLOCKS}.attention.n_heads": 1,
        f"{_BLOCKS}.attention.n_kv_heads": None,
        f"{_BLOCKS}.cross.n_heads": 1,
        f"{_BLOCKS}.cross.n_kv_heads": None,
    },
}
"""By part, the changes to the model's spec without it: no residual connections, no norms, scores that are not divided by
√d, no positions, no feed-forward layers, and one head as wide as all heads together."""


def check_parts(names: list[str]) -> None:
    """Raise ValueError if a name is not that of a part, or is given twice."""
    for i, name in enumerate(names):
        if name not in PARTS:
            raise ValueError(f"--drop knows no {brief(name)}; {nearest(name, PARTS)}")
        if name in names[:i]:
            raise ValueError(f"--drop names {name} twice; leave one out")


def drop(recipe: Recipe, part: str) -> dict[str, Any]:
    """Settings that remove a part from a recipe's model. Raises ValueError if the model does not have the part."""
    spec = recipe.spec()
    changes = {path: value for path, value in PARTS[part].items() if _has(spec, path, value)}
    try:
        changed = spec.replace(changes)
    except ValueError as error:
        raise ValueError(f"--drop {part}: {error}") from None
    if changed == spec:
        raise ValueError(f"--drop {part} changes nothing: the model of {recipe.name} has no such part; leave it out")
    return {f"model.{path}": value for path, value in changes.items()}


def _has(spec: Any, path: str, value: Any) -> bool:
    """Whether some part of a spec has a path, whatever it thinks of the value."""
    try:
        spec.replace({path: value})
    except ValueError as error:
        return not str(error).startswith("no part of")
    return True
