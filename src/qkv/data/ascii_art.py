"""Images, masks and time series drawn as text, for `qkv show RECIPE --data`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.batch import IGNORE

SHADES, BARS, HIDDEN = " ░▒▓█", "▁▂▃▄▅▆▇█", "·"
_ROWS, _COLUMNS = 16, 96  # of characters at most
_NAMES = "·123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def picture(pixels: Tensor, hidden: Tensor | None = None) -> list[str]:
    """(C, H, W) in five shades of its brightness, from the darkest to the lightest; where `hidden` (H, W), dots."""
    gray = pixels.float().mean(0)
    size = _size(gray.shape)
    shown = F.adaptive_avg_pool2d(gray[None], size)[0]
    low, high = float(shown.min()), float(shown.max())
    levels = ((shown - low) / max(high - low, 1e-9) * len(SHADES)).long().clamp(max=len(SHADES) - 1)
    away = torch.zeros(size, dtype=torch.bool) if hidden is None else _nearest(hidden, size)
    rows = zip(levels.tolist(), away.tolist(), strict=True)
    return ["".join(HIDDEN if gone else SHADES[level] for level, gone in zip(*row, strict=True)) for row in rows]


def mask(classes: Tensor) -> list[str]:
    """(H, W) numbers of classes, a character each: a dot for the first, then 1, 2 … a, b …; blank where there is none."""
    shown = _nearest(classes, _size(classes.shape)).tolist()
    return ["".join(" " if k == IGNORE else _NAMES[k % len(_NAMES)] for k in row) for row in shown]


def shares(classes: Tensor, names: Sequence[str]) -> str:
    """How much of a mask is of which class, each with its character: `· background 71 %, 2 circle 29 %`."""
    known = classes[classes != IGNORE]
    found = [(k, int((known == k).sum())) for k in known.unique().tolist()]
    return ", ".join(f"{_NAMES[k % len(_NAMES)]} {names[k]} {n / len(known):.0%}" for k, n in found)


def series(values: Tensor) -> str:
    """(T,) as bars from the lowest value to the highest; several values become one where there is no room."""
    shown = F.adaptive_avg_pool1d(values.float()[None], min(len(values), _COLUMNS))[0]
    low, high = float(shown.min()), float(shown.max())
    levels = ((shown - low) / max(high - low, 1e-9) * len(BARS)).long().clamp(max=len(BARS) - 1)
    return "".join(BARS[level] for level in levels.tolist())


def _size(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of characters, which are twice as high as wide."""
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
