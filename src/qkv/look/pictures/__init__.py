"""Pictures of samples for a report, each kind in its own file: input, output of the model, and truth."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from ...core.spec import brief

Draw = Callable[[Mapping[str, Any]], Markup]

_KINDS: dict[str, Draw] = {}


def draws(kind: str) -> Callable[[Draw], Draw]:
    """Register a function that draws pictures of a kind."""

    def register(draw: Draw) -> Draw:
        _KINDS[kind] = draw
        return draw

    return register


def draw(picture: Mapping[str, Any]) -> Markup:
    """Draw the "picture" of a sample. Raises ValueError for an unknown kind."""
    kind = str(picture.get("kind"))
    if kind not in _KINDS and importlib.util.find_spec(f"{__name__}.{kind}") is not None:
        importlib.import_module(f"{__name__}.{kind}")  # a built-in kind is in the file of its name
    if kind not in _KINDS:
        raise ValueError(f"there is no kind of picture {brief(kind)}; known are {', '.join(sorted(_KINDS)) or 'none'}")
    return _KINDS[kind](picture)
