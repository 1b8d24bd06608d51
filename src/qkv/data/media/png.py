"""PNG encoding of images and class masks, as bytes or as base64 for JSON and HTML."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRAY, _COLOR, _PALETTE = 0, 2, 3  # the types of colors in a file

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
    """The PNG of a picture (C, H, W) of 0 … 255, with 1 or 3 channels."""
    return _encoded(np.ascontiguousarray(pixels.transpose(1, 2, 0), np.uint8), _GRAY if len(pixels) == 1 else _COLOR)


def class_png_bytes(classes: NDArray[Any]) -> bytes:
    """The PNG of class numbers (H, W) with a palette of one color per class; numbers below 0 are white."""
    palette = bytes([*(part for k in range(255) for part in class_color(k)), 255, 255, 255])
    return _encoded(np.where(classes < 0, 255, classes).astype(np.uint8)[..., None], _PALETTE, (b"PLTE", palette))


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


def _encoded(pixels: NDArray[np.uint8], kind: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """The file of pixels (H, W, bytes per pixel), as the PNG specification (ISO 15948) defines it."""
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    data = zlib.compress(_filtered(pixels) if kind != _PALETTE else _unfiltered(pixels), 9)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )


def _unfiltered(pixels: NDArray[np.uint8]) -> bytes:
    """The rows, each after the number 0 of the filter that changes nothing."""
    return np.pad(pixels.reshape(len(pixels), -1), ((0, 0), (1, 0))).tobytes()


def _filtered(pixels: NDArray[np.uint8]) -> bytes:
    """The rows, each by itself or as differences from the pixels to the left or above, whichever has the smallest sum."""
    left, above = np.zeros_like(pixels), np.zeros_like(pixels)
    left[:, 1:], above[1:] = pixels[:, :-1], pixels[:-1]
    rows = np.stack([pixels, pixels - left, pixels - above]).reshape(3, len(pixels), -1)
    filters = np.abs(rows.view(np.int8).astype(np.int64)).sum(-1).argmin(0)
    chosen = np.take_along_axis(rows, filters[None, :, None], 0)[0]
    return np.concatenate([filters[:, None].astype(np.uint8), chosen], 1).tobytes()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
