"""Images, masks and time series drawn as text, for `qkv show RECIPE --data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.batch import IGNORE

SHADES, BARS, HIDDEN = " ░▒▓█", "▁▂▃▄▅▆▇█", "·"
_ROWS, _COLUMNS = 16, 96  # of characters at most
_NAMES = "·123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def picture(pixels: Tensor, hidden: Tensor | None = None) -> list[str]:
    """Draw an image (C, H, W) in five shades of brightness, with dots where `hidden` (H, W) is true."""
    gray = pixels.float().mean(0)
    size = _size(gray.shape)
    shown = F.adaptive_avg_pool2d(gray[None], size)[0]
    levels = _levels(shown, SHADES)
    away = torch.zeros(size, dtype=torch.bool) if hidden is None else _nearest(hidden, size)
    rows = zip(levels, away.tolist(), strict=True)
    return ["".join(HIDDEN if gone else SHADES[level] for level, gone in zip(*row, strict=True)) for row in rows]


def mask(classes: Tensor) -> list[str]:
    """Draw class numbers (H, W) as a character each: a dot for 0, then 1, 2 … a, b …; blank where there is no class."""
    shown = _nearest(classes, _size(classes.shape)).tolist()
    return ["".join(" " if k == IGNORE else _NAMES[k % len(_NAMES)] for k in row) for row in shown]


def shares(classes: Tensor, names: Sequence[str]) -> str:
    """The share of each class in a mask, with its character: `· background 71 %, 2 circle 29 %`."""
    known = classes[classes != IGNORE]
    counts = [(k, int((known == k).sum())) for k in known.unique().tolist()]
    return ", ".join(f"{_NAMES[k % len(_NAMES)]} {names[k]} {n / len(known):.0%}" for k, n in counts)


def series(values: Tensor) -> str:
    """Draw a series (T,) as bars from its lowest value to its highest; a long series is averaged to fit."""
    shown = F.adaptive_avg_pool1d(values.float()[None], min(len(values), _COLUMNS))[0]
    return "".join(BARS[level] for level in _levels(shown, BARS))


def _levels(values: Tensor, characters: str) -> Any:
    """The index of the character for each value, from the lowest value to the highest, as nested lists."""
    low, high = float(values.min()), float(values.max())
    levels = (values - low) / max(high - low, 1e-9) * len(characters)
    return levels.long().clamp(max=len(characters) - 1).tolist()


def _size(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a drawing; characters are twice as high as wide."""
    height, width = shape
    rows = min(height, _ROWS)
    columns = max(1, round(2 * rows * width / height))
    if columns > _COLUMNS:
        rows, columns = max(1, round(rows * _COLUMNS / columns)), _COLUMNS
    return rows, columns


def _nearest(values: Tensor, size: tuple[int, int]) -> Tensor:
    rows, columns = (
        torch.arange(n).mul(2).add(1).mul(have).div(2 * n, rounding_mode="floor")
        for n, have in zip(size, values.shape, strict=True)
    )
    return values[rows][:, columns]
