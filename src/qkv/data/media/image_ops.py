"""Image operations on batches (N, C, H, W) of uint8: brightness, contrast, hue, sharpness, posterize, equalize, affine.

Each takes one amount per image and matches Pillow's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .images import Pixels

Amounts = NDArray[np.float64]
Change = Callable[[Pixels, Amounts], Pixels]

_GRAY = np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]  # ITU-R 601-2
_OUTSIDE = 128  # the gray of pixels from outside of an image


def adjust_brightness(pixels: Pixels, factor: Amounts) -> Pixels:
    return _bytes(pixels * _each(factor))


def adjust_contrast(pixels: Pixels, factor: Amounts) -> Pixels:
    """Move away from, or toward, the mean of the gray image."""
    return _between(_gray(pixels).mean((2, 3), keepdims=True), pixels, factor)


def adjust_saturation(pixels: Pixels, factor: Amounts) -> Pixels:
    """Move away from, or toward, the gray image."""
    return pixels if pixels.shape[1] == 1 else _between(_gray(pixels), pixels, factor)


def adjust_sharpness(pixels: Pixels, factor: Amounts) -> Pixels:
    """Move away from, or toward, a smoothed image: the mean of 3 × 3 pixels, with weight 5 in the middle; edges stay."""
    if min(pixels.shape[2:]) < 3:
        return pixels
    x = pixels.astype(np.float32)
    across = x[..., :-2] + x[..., 1:-1] + x[..., 2:]
    around = across[:, :, :-2] + across[:, :, 1:-1] + across[:, :, 2:]
    smooth = x.copy()
    smooth[:, :, 1:-1, 1:-1] = (around + 4 * x[:, :, 1:-1, 1:-1]) / 13
    return _between(smooth, pixels, factor)


def adjust_hue(pixels: Pixels, turn: Amounts) -> Pixels:
    """Rotate the hue by a share of the circle; value and saturation (of HSV) stay."""
    x = pixels.astype(np.float32)
    value, chroma = x.max(1), x.max(1) - x.min(1)
    red, green, blue = x.transpose(1, 0, 2, 3)
    safe = np.where(chroma > 0, chroma, 1)
    sector = np.select(
        [value == red, value == green], [(green - blue) / safe % 6, (blue - red) / safe + 2], (red - green) / safe + 4
    )
    sector = sector + 6 * turn[:, None, None]
    parts = [(n + sector) % 6 for n in (5, 3, 1)]
    return _bytes(np.stack([value - chroma * np.clip(np.minimum(p, 4 - p), 0, 1) for p in parts], 1))


def posterize(pixels: Pixels, bits: NDArray[Any]) -> Pixels:
    """Keep the highest `bits` bits of each number."""
    return pixels & _each(0xFF << (8 - bits) & 0xFF).astype(np.uint8)


def solarize(pixels: Pixels, threshold: Amounts) -> Pixels:
    """Invert numbers from a threshold on."""
    return np.where(pixels >= _each(threshold), 255 - pixels, pixels)


def autocontrast(pixels: Pixels) -> Pixels:
    """Stretch each channel to 0 … 255."""
    low, high = (end((2, 3), keepdims=True).astype(np.float32) for end in (pixels.min, pixels.max))
    scale = np.where(high > low, 255 / np.maximum(high - low, 1), 1)
    return _bytes(np.where(high > low, (pixels - low) * scale, pixels))


def equalize(pixels: Pixels) -> Pixels:
    """Equalize the histogram of each channel: map each number to the share of pixels below it."""
    n, channels, height, width = pixels.shape
    flat = pixels.reshape(n * channels, height * width)
    rows = np.arange(n * channels)[:, None]
    counts = np.bincount((rows * 256 + flat).ravel(), minlength=n * channels * 256).reshape(-1, 256)
    last = np.take_along_axis(counts, 255 - (counts[:, ::-1] > 0).argmax(1)[:, None], 1)
    step = (height * width - last) // 255
    below = np.cumsum(counts, 1) - counts
    table = np.minimum((below + step // 2) // np.maximum(step, 1), 255)
    table = np.where(step > 0, table, np.arange(256)).astype(np.uint8)
    return np.take_along_axis(table, flat, 1).reshape(pixels.shape)


def affine(
    pixels: Pixels,
    angle: Amounts | float = 0.0,
    shear_x: Amounts | float = 0.0,
    shear_y: Amounts | float = 0.0,
    shift_x: Amounts | float = 0.0,
    shift_y: Amounts | float = 0.0,
) -> Pixels:
    """Rotate around the center (counterclockwise, in degrees), shear, and shift by shares of the width and height.

    Nearest-neighbor sampling; pixels from outside are gray.
    """
    n, _, height, width = pixels.shape
    turn, across, down, right, below = (
        np.broadcast_to(value, n)[:, None, None] for value in (np.deg2rad(angle), shear_x, shear_y, shift_x, shift_y)
    )
    y = np.arange(height)[:, None] - (height - 1) / 2
    x = np.arange(width) - (width - 1) / 2
    from_x = np.cos(turn) * x - np.sin(turn) * y + across * y - right * width
    from_y = np.sin(turn) * x + np.cos(turn) * y + down * x - below * height
    row = np.rint(from_y + (height - 1) / 2).astype(np.int64)
    column = np.rint(from_x + (width - 1) / 2).astype(np.int64)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    place = np.where(inside, row * width + column, 0).reshape(n, 1, height * width)
    sampled = np.take_along_axis(pixels.reshape(n, -1, height * width), place, 2).reshape(pixels.shape)
    return np.where(inside[:, None], sampled, np.uint8(_OUTSIDE))


def _each(amounts: NDArray[Any]) -> NDArray[Any]:
    amounts = np.asarray(amounts)
    return (amounts.astype(np.float32) if amounts.dtype.kind == "f" else amounts)[:, None, None, None]


def _gray(pixels: Pixels) -> NDArray[np.float32]:
    gray: NDArray[np.float32] = pixels.astype(np.float32)
    return gray if pixels.shape[1] == 1 else (gray * _GRAY).sum(1, keepdims=True)


def _between(base: NDArray[Any], pixels: Pixels, factor: Amounts) -> Pixels:
    """base + factor · (pixels − base)."""
    return _bytes(base + _each(factor) * (pixels - base))


def _bytes(numbers: NDArray[Any]) -> Pixels:
    return np.rint(numbers).clip(0, 255).astype(np.uint8)
