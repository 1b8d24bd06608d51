"""Families as data: named sizes of published models, and what makes any size of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..core.positions import Position
from ..core.spec import nearest
from ..model.transformer import Transformer
from . import gpt2, llama, vanilla

Factory = Callable[..., Transformer]

FACTORIES: dict[str, tuple[Factory, dict[str, dict[str, Any]]]] = {
    "transformer": (vanilla.transformer, vanilla.SIZES),
    "gpt": (gpt2.gpt, gpt2.SIZES),
    "llama": (llama.llama, llama.SIZES),
}
PRESETS: dict[str, tuple[Factory, dict[str, Any]]] = {
    name: (factory, sizes) for factory, named in FACTORIES.values() for name, sizes in named.items()
}


def preset(name: str, **sizes: Any) -> Transformer:
    """The spec of a named model, with any size changed: `preset("gpt2", n_layers=4, position="alibi")`.

    Raises ValueError with the nearest names for a preset or a size that does not exist.
    """
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; {nearest(name, PRESETS)}")
    factory, named = PRESETS[name]
    known = inspect.signature(factory).parameters
    for key in sizes:
        if key not in known:
            raise ValueError(f"preset {name!r} has no size {key!r}; {nearest(key, known)}")
    if isinstance(sizes.get("position"), str | dict):
        given = sizes["position"]
        sizes["position"] = Position.from_dict({"kind": given} if isinstance(given, str) else given)
    return factory(**{**named, **sizes})
