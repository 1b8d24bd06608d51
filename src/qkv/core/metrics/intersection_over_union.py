"""Intersection over union (IoU, Jaccard index) of semantic segmentation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..several import worded
from .display import register

register("miou", "Mean IoU", "fraction", higher_is_better=True)
register("pixel_accuracy", scale="fraction", higher_is_better=True)


@worded
def ious(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """The IoU of each class, from a confusion matrix; NaN for a class that is in neither truth nor prediction."""
    both = np.diag(confusion).astype(float)
    either = confusion.sum(0) + confusion.sum(1) - both
    return np.divide(both, either, out=np.full(len(both), np.nan), where=either > 0)
