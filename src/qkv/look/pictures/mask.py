"""A picture, the class of each of its pixels, and what a model took it for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws

_WIDTH = 220


@draws("mask")
def mask(picture: Mapping[str, Any]) -> Markup:
    """`image`, `truth` and `made` are PNGs in base64, `classes` names with their colors."""
    shown = [
        tag("figure", _image(picture[key], name), tag("figcaption", name), style="margin:0")
        for key, name in (("image", "picture"), ("truth", "truth"), ("made", "prediction"))
    ]
    swatch = "display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;background:"
    names = [tag("span", tag("span", "", style=f"{swatch}{color}"), name) for name, color in picture["classes"]]
    row = tag("div", *shown, style="display:flex;gap:12px;flex-wrap:wrap")
    return tag("div", row, tag("p", *names, style="margin:.4em 0 0 -1em"))


def _image(data: str, name: str) -> Markup:
    return tag("img", src=f"data:image/png;base64,{data}", alt=name, width=_WIDTH, style="image-rendering:pixelated")
