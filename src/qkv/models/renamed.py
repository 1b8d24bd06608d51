"""Tensors under another name than in earlier versions. A model's `renamed_tensors` maps old prefixes to new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


def renamed_tensors(model: nn.Module) -> Mapping[str, str]:
    """Old prefixes of tensor names and the new ones."""
    return getattr(model, "renamed_tensors", {})


def new_name(model: nn.Module, name: str) -> str:
    """The name of a tensor that an earlier version saved as `name`."""
    return _swapped(name, renamed_tensors(model))


def old_name(model: nn.Module, name: str) -> str:
    """The first name of a tensor, by which its initial numbers are drawn, so that they stay the same in every version."""
    return _swapped(name, {new: old for old, new in renamed_tensors(model).items()})


def rename_tensors(model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """A hook before `load_state_dict`, which gives tensors of earlier versions their present names."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[prefix + new_name(model, name.removeprefix(prefix))] = state_dict.pop(name)


def _swapped(name: str, prefixes: Mapping[str, str]) -> str:
    return next(
        (after + name.removeprefix(before) for before, after in prefixes.items() if name.startswith(before)), name
    )
