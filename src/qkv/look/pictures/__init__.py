"""Pictures of samples for a report, one file a kind: what was seen, what the model made of it, and the truth."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

Draw = Callable[[Mapping[str, Any]], Markup]

_KINDS: dict[str, Draw] = {}


def draws(kind: str) -> Callable[[Draw], Draw]:
    """Make a function the one that draws pictures of a kind."""

    def register(draw: Draw) -> Draw:
        _KINDS[kind] = draw
        return draw

    return register


def draw(picture: Mapping[str, Any]) -> Markup:
    """A sample's "picture". Raises ValueError for a kind that nothing draws."""
    kind = str(picture.get("kind"))
    if kind not in _KINDS and importlib.util.find_spec(f"{__name__}.{kind}") is not None:
        importlib.import_module(f"{__name__}.{kind}")  # a kind of our own is in the file of its name
    if kind not in _KINDS:
        raise ValueError(f"there is no picture of the kind {kind!r}; there is {', '.join(sorted(_KINDS)) or 'none'}")
    return _KINDS[kind](picture)
