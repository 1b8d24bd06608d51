"""Bitmaps and PNG data as images of an HTML page."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ...data.media.png import png
from ..svg import tag


def beside(images: Iterable[tuple[str, str]], widest: int) -> Markup:
    """Show base64 PNGs with titles below, side by side in equal widths of at most `widest` pixels."""
    style = f"margin:0;flex:1 1 0;min-width:0;max-width:{widest}px"
    shown = [tag("figure", drawn(data, title), tag("figcaption", title), style=style) for title, data in images]
    return tag("div", *shown, style="display:flex;gap:12px")


def drawn(data: str, title: str, style: str = "width:100%") -> Markup:
    """Show a base64 PNG scaled by the CSS `style`; enlarged pixels stay squares."""
    return tag("img", src=f"data:image/png;base64,{data}", alt=title, style=f"{style};image-rendering:pixelated")


def bitmap(pixels: NDArray[np.uint8], title: str, scale: int = 1) -> Markup:
    """Show an array (H, W, 3) or (H, W) of values 0 to 255 as an <img>, each pixel `scale` × `scale` on the page."""
    data = png(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    height, width = pixels.shape[:2]
    return tag("img", src=f"data:image/png;base64,{data}", alt=title, width=width * scale, height=height * scale)
