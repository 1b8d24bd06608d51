"""Drawing of a picture with its true and its predicted classes of pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ...look.pictures import draws
from ...look.pictures.bitmap import beside
from ...look.svg import tag

_SHOWN = (("picture", "image"), ("truth", "truth"), ("prediction", "made"))


@draws("mask")
def mask(picture: Mapping[str, Any]) -> Markup:
    """`image`, `truth` and `made` are PNGs in base64, `classes` names with their colors."""
    swatch = "display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;background:"
    names = [tag("span", tag("span", "", style=f"{swatch}{color}"), name) for name, color in picture["classes"]]
    row = beside(((name, picture[key]) for name, key in _SHOWN), widest=220)
    return tag("div", row, tag("p", *names, style="margin:.4em 0 0 -1em"))
