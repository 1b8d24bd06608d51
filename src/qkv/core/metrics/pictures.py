"""Similarity of pictures: peak signal-to-noise ratio and structural similarity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..several import worded
from .display import register

register("psnr", "PSNR, dB", higher_is_better=True, about="peak signal-to-noise ratio, the mean over pictures")
register("ssim", "SSIM", scale="correlation", higher_is_better=True, about="structural similarity (Wang et al. 2004)")

PEAK = 255.0
_SIGMA, _WIDTH = 1.5, 11  # of the Gaussian window, in pixels
_C1, _C2 = (0.01 * PEAK) ** 2, (0.03 * PEAK) ** 2


@worded
def psnr(made: NDArray[Any], truth: NDArray[Any]) -> float:
    """10 log10(255² / MSE) in decibels, of pictures (C, H, W) of 0 … 255.

    Equal pictures, which have no finite ratio, count as if one of their values were off by 1.
    """
    _check(made, truth)
    squares = float(np.square(np.asarray(made, np.float64) - truth).sum())
    return 10 * math.log10(PEAK**2 * made.size / max(squares, 1.0))


@worded
def ssim(made: NDArray[Any], truth: NDArray[Any]) -> float:
    """The structural similarity of pictures (C, H, W) of 0 … 255 (Wang et al. 2004, eq. 13), −1 … 1; 1 for equal ones.

        (2 μ_x μ_y + c1) (2 σ_xy + c2) / ((μ_x² + μ_y² + c1) (σ_x² + σ_y² + c2)),  c1 = (0.01 · 255)², c2 = (0.03 · 255)²

    with means, variances and covariance in windows of 11 × 11 pixels, weighted by a Gaussian of σ = 1.5. The result is the
    mean over all windows that lie in the picture, and over channels. In smaller pictures the window has the largest odd
    width that fits.
    """
    _check(made, truth)
    x, y = np.asarray(made, np.float64), np.asarray(truth, np.float64)
    width = min(_WIDTH, *(side - 1 + side % 2 for side in x.shape[1:]))
    mean_x, mean_y = _windows(x, width), _windows(y, width)
    var_x, var_y = _windows(x * x, width) - mean_x**2, _windows(y * y, width) - mean_y**2
    covariance = _windows(x * y, width) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    structure = (2 * covariance + _C2) / (var_x + var_y + _C2)
    return float((luminance * structure).mean())


def _windows(x: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Weighted means of all windows of `width` × `width` pixels in (C, H, W)."""
    weights = np.exp(-0.5 * (np.arange(width) - width // 2) ** 2 / _SIGMA**2)
    weights /= weights.sum()
    for axis in (1, 2):
        x = np.lib.stride_tricks.sliding_window_view(x, width, axis) @ weights
    return x


def _check(made: NDArray[Any], truth: NDArray[Any]) -> None:
    if made.shape != truth.shape or made.ndim != 3 or not made.size:
        raise ValueError(f"pictures are compared as (C, H, W), both of one shape, not {made.shape} and {truth.shape}")
