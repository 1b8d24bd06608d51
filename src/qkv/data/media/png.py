"""PNG encoding of images and class masks, as bytes or as base64 for JSON and HTML."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Wong 2011: colors that people with color blindness can distinguish.
_COLORS = ((230, 230, 230), (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (213, 94, 0))


def png(pixels: NDArray[Any], most: int | None = None) -> str:
    """The PNG of a picture (C, H, W) of 0 … 255, in base64; with `most`, only every nth pixel, so no side is longer."""
    step = 1 if most is None else -(-max(pixels.shape[1:]) // most)
    return _text(png_bytes(pixels[:, ::step, ::step]))


def class_png(classes: NDArray[Any]) -> str:
    """The PNG of class numbers (H, W), in base64."""
    return _text(class_png_bytes(classes))


def png_bytes(pixels: NDArray[Any]) -> bytes:
    """The PNG of a picture (C, H, W) of 0 … 255."""
    from PIL import Image

    flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return _encoded(Image.fromarray(np.ascontiguousarray(flat, np.uint8)))


def class_png_bytes(classes: NDArray[Any]) -> bytes:
    """The PNG of class numbers (H, W) with a palette of one color per class; numbers below 0 are white."""
    from PIL import Image

    palette = [color for k in range(255) for color in class_color(k)]
    image = Image.fromarray(np.where(classes < 0, 255, classes).astype(np.uint8), "P")
    image.putpalette([*palette, 255, 255, 255])
    return _encoded(image)


def laid_over(pixels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.uint8]:
    """An image (C, H, W) in gray, blended half and half with the colors of its classes (H, W): (3, H, W)."""
    colors = np.array([class_color(k) for k in range(int(classes.max()) + 1)])[classes].transpose(2, 0, 1)
    blended: NDArray[np.uint8] = ((pixels.mean(0) + colors) / 2).astype(np.uint8)
    return blended


def class_color(number: int) -> tuple[int, int, int]:
    """Red, green and blue of a class: the colors of a small palette, darker in each cycle."""
    turn, place = divmod(number, len(_COLORS))
    red, green, blue = (round(part * 0.75**turn) for part in _COLORS[place])
    return red, green, blue


def _encoded(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
