"""What was seen of a picture, what a model made of it, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws

_WIDTH = 150


@draws("patches")
def patches(picture: Mapping[str, Any]) -> Markup:
    """`seen`, `made` and `truth` are PNGs in base64; what was not seen is gray in `seen`."""
    shown = [
        tag("figure", _image(picture[key], name), tag("figcaption", name), style="margin:0")
        for key, name in (("seen", "seen"), ("made", "reconstructed"), ("truth", "truth"))
    ]
    return tag("div", *shown, style="display:flex;gap:12px;flex-wrap:wrap")


def _image(data: str, name: str) -> Markup:
    return tag("img", src=f"data:image/png;base64,{data}", alt=name, width=_WIDTH, style="image-rendering:pixelated")
