"""Accuracy, F1 and Matthews' correlation of classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .display import register

register("accuracy", scale="fraction", higher_is_better=True)
register("f1", "F1", "fraction", higher_is_better=True)
register("macro_f1", "Macro F1", "fraction", higher_is_better=True)
register("mcc", "Matthews correlation", "correlation", higher_is_better=True)

Array = NDArray[Any]


def f1(table: Array) -> Array:
    """2 · right / (true + said) of each class, by how often each class (row) was taken for each; NaN where it never was."""
    total = table.sum(0) + table.sum(1)
    each: Array = np.where(total > 0, 2 * table.diagonal() / np.maximum(total, 1), np.nan)
    return each


def mcc(table: Array) -> float:
    """Matthews' correlation, −1 to 1, of any number of classes (Gorodkin 2004, R_K); 0 where a side has one class alone."""
    n, true, said = int(table.sum()), table.sum(1).astype(float), table.sum(0).astype(float)
    spread = (n**2 - true @ true) * (n**2 - said @ said)
    return float((table.trace() * n - true @ said) / math.sqrt(spread)) if spread > 0 else 0.0
