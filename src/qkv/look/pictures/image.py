"""A picture, as it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws


@draws("image")
def image(picture: Mapping[str, Any]) -> Markup:
    """`image` is a PNG in base64; one that is small is drawn large, its pixels as squares."""
    source = f"data:image/png;base64,{picture['image']}"
    return tag("img", src=source, alt="picture", width=160, style="image-rendering:pixelated")
