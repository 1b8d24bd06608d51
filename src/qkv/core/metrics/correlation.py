"""Spearman's rank correlation and Pearson's correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..several import worded
from .base import MetricValue
from .display import register

register("spearman", scale="correlation", higher_is_better=True)
register("absolute_error", higher_is_better=False)
register("pearson", scale="correlation", higher_is_better=True)

Array = NDArray[Any]


@worded
def correlations(truth: Sequence[float], predicted: Sequence[float]) -> dict[str, MetricValue]:
    """Correlations of ranks (Spearman) and of values (Pearson), −1 to 1: 0 if all values of a side are equal, NaN if there
    are no values, or one is NaN or infinite."""
    a, b = np.asarray(truth, float), np.asarray(predicted, float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(
            f"true and predicted values are lists of equal lengths, and their shapes are {a.shape} and {b.shape}"
        )
    if not len(a) or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return {name: MetricValue(math.nan) for name in ("spearman", "pearson")}
    return {"spearman": MetricValue(pearson(ranks(a), ranks(b))), "pearson": MetricValue(pearson(a, b))}


def pearson(a: Array, b: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:  # the mean of equal values may differ from them by a rounding error
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else 0.0


def ranks(values: Array) -> Array:
    """Ranks of values, 1 for the least; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Array = (ends - (counts - 1) / 2)[places]
    return shared
