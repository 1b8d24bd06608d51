"""Numbers as an explanation displays them, compared with an independent computation."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.learn.explain.explanation import Explanation
from qkv.learn.explain.steps import LabeledTable

ROUNDING = 5.1e-5  # of four decimals


def numbers(table: LabeledTable) -> np.ndarray:
    """The displayed texts of a table as numbers; NaN if a cell is empty."""
    texts = [[text.replace("−", "-").replace("∞", "inf").replace(",", "") for text in row] for row in table.texts()]
    return np.array([[float(text or "nan") for text in row] for row in texts])


def column(table: LabeledTable, name: str) -> np.ndarray:
    """The displayed texts of one column as numbers."""
    index = table.columns.index(name)
    return np.array([float(row[index].replace("−", "-").replace("∞", "inf").replace(",", "")) for row in table.texts()])


def exact(explanation: Explanation, caption: str) -> np.ndarray:
    """The unrounded numbers of a table."""
    return np.array(explanation.table(caption).values, dtype=np.float64)


def check(displayed: np.ndarray, expected: Any, rounding: float = ROUNDING) -> None:
    """Displayed numbers are the expected ones, to the displayed precision."""
    np.testing.assert_allclose(displayed, np.asarray(expected, dtype=np.float64), rtol=0, atol=rounding)


def softmax(scores: Any) -> np.ndarray:
    """exp(s) / Σ exp(s) over the last axis."""
    exponentials = np.exp(np.asarray(scores, dtype=np.float64))
    return exponentials / exponentials.sum(-1, keepdims=True)
