"""F1 and Matthews' correlation (MCC) of classification, from a confusion matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..several import worded
from .display import register

register("accuracy", scale="fraction", higher_is_better=True)
register("f1", "F1", "fraction", higher_is_better=True)
register("true_class_probability", "Probability of the true class", "fraction", higher_is_better=True, part=True)
register("macro_f1", "Macro F1", "fraction", higher_is_better=True)
register("mcc", "Matthews correlation", "correlation", higher_is_better=True)

Array = NDArray[Any]


@worded
def f1(table: Array) -> Array:
    """F1 = 2 · right / (true + predicted) of each class, from a confusion matrix (true × predicted); NaN for a class that
    occurs in neither."""
    total = table.sum(0) + table.sum(1)
    scores: Array = np.where(total > 0, 2 * table.diagonal() / np.maximum(total, 1), np.nan)
    return scores


@worded
def mcc(table: Array) -> float:
    """Matthews' correlation, −1 to 1, for any number of classes (Gorodkin 2004, R_K); 0 if all true or all predicted classes
    are the same."""
    n, true, predicted = int(table.sum()), table.sum(1).astype(float), table.sum(0).astype(float)
    spread = (n**2 - true @ true) * (n**2 - predicted @ predicted)
    return float((table.trace() * n - true @ predicted) / math.sqrt(spread)) if spread > 0 else 0.0
