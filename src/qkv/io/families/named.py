"""Presets: named sizes of every family's factory, and models defined outside qkv."""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, overload

from ...core.registry import LazyTable
from ...core.spec import brief, nearest
from ...nn.models.base import ModelSpec
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.recurrent.model import Recurrent
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from . import MODULES
from .preset_names import HOMES, WITHOUT, DualEncoderName, RecurrentName, TransformerName

Factory = Callable[..., Any]  # a Transformer's spec, or another model's

Preset = tuple[Factory, dict[str, Any]]  # a factory and its sizes


def presets_in(module: ModuleType) -> dict[str, Preset]:
    """The presets of a module of this package."""
    pairs = module.PRESETS if hasattr(module, "PRESETS") else [(module.FAMILY.make, module.SIZES)]
    return {name: (factory, sizes) for factory, named in pairs for name, sizes in named.items()}


def _preset_in(name: str, module: ModuleType) -> Preset:
    return presets_in(module)[name]


PRESETS: LazyTable[Preset] = LazyTable()
"""The presets by name. One's module is imported when it is first asked for."""

for _name, _module in HOMES.items():
    PRESETS.later(_name, f"{__package__}.{_module}", partial(_preset_in, _name))
for _module in MODULES.keys() - HOMES.values() - set(WITHOUT):  # modules added since HOMES was written
    PRESETS.update(presets_in(import_module(f".{_module}", __package__)))


def presets() -> Mapping[str, Preset]:
    """Every preset, and the kinds of models defined outside qkv, whose sizes are their fields."""
    outside = {kind: cls for kind, cls in ModelSpec.kinds.items() if not cls.__module__.startswith("qkv.")}
    for cls in outside.values():
        cls.model_rebuild()  # a spec's signature exists only after its schema is built
    return ChainMap(PRESETS, {kind: (cls, {}) for kind, cls in outside.items()})


@overload
def preset(name: TransformerName, **sizes: Any) -> Transformer: ...
@overload
def preset(name: RecurrentName, **sizes: Any) -> Recurrent: ...
@overload
def preset(name: DualEncoderName, **sizes: Any) -> DualEncoder: ...
@overload
def preset(name: str, **sizes: Any) -> Any: ...
def preset(name: str, **sizes: Any) -> ModelSpec:
    """The spec of a named model, with any size changed: `preset("gpt2", n_layers=4, position="alibi")`.

    A size may have another library's name that means the same, as `hidden_size` does for `d_model`. Raises ValueError with
    the nearest names for a preset or a size that does not exist.
    """
    known_presets = presets()
    if not isinstance(name, str) or name not in known_presets:
        raise ValueError(f"there is no preset {brief(name)}; {nearest(name, known_presets)}")
    factory, named = known_presets[name]
    known = inspect.signature(factory).parameters
    if not sizes.keys() <= known.keys():
        from ...core.synonyms import in_ours

        sizes = in_ours(sizes, known, "model")
    for key in sizes:
        if key not in known:
            raise ValueError(f"preset {brief(name)} has no size {brief(key)}; {_size_advice(name, key, known)}")
        _check_size(name, known[key], sizes[key])
    if isinstance(sizes.get("position"), str | dict):
        position = sizes["position"]
        sizes["position"] = Position.from_dict({"kind": position} if isinstance(position, str) else position)
    return factory(**{**named, **sizes})


def _size_advice(name: str, key: str, known: Collection[str]) -> str:
    """How to set a field of the model that is not a size of its preset, or else the sizes that there are."""
    if name in PRESETS and key in type(preset(name)).model_fields:
        return f"it is a field of the model: set model.replace.{key}=… in a recipe, or use .replace({key}=…) in Python"
    from ...core.synonyms import elsewhere

    return elsewhere(key, known) or nearest(key, known)


_MAY_BE_0 = ("token_types", "labels", "before", "after", "detections")


def _check_size(preset: str, size: inspect.Parameter, value: Any) -> None:
    """Check that integer sizes are integers above 0; those in `_MAY_BE_0`, or 0 by default, may be 0, optional ones None."""
    if size.annotation not in ("int", "int | None"):
        return
    if value is None and (size.annotation == "int | None" or size.name == "max_positions"):  # none, or no bound
        return
    least = 0 if size.name in _MAY_BE_0 or size.default == 0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"preset {brief(preset)}: {size.name} must be a whole number of at least {least}, not {brief(value)}"
        )
