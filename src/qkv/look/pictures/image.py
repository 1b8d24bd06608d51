"""Pictures of the kind `image`: the input itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws


@draws("image")
def image(picture: Mapping[str, Any]) -> Markup:
    """Show the base64 PNG `image`, enlarged if it is small, with square pixels."""
    source = f"data:image/png;base64,{picture['image']}"
    return tag("img", src=source, alt="picture", width=160, style="image-rendering:pixelated")
