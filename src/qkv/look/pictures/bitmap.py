"""Arrays of colors as an image of a page."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ..svg import tag


def bitmap(pixels: NDArray[np.uint8], title: str, scale: int = 1) -> Markup:
    """(H, W, 3) or (H, W) numbers from 0 to 255 as an <img>, each pixel `scale` wide and high on the page."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    height, width = pixels.shape[:2]
    return tag("img", src=f"data:image/png;base64,{data}", alt=title, width=width * scale, height=height * scale)
