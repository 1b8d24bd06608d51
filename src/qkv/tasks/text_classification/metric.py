"""Classes beside the truth: accuracy, F1, and Matthews' correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ...data.batching.numpy_batch import Array
from ...metrics.base import Metric, MetricValue
from ...metrics.display import register
from ..samples import evenly, read_of

register("accuracy", scale="fraction", higher_is_better=True)
register("f1", "F1", "fraction", higher_is_better=True)
register("macro_f1", "Macro F1", "fraction", higher_is_better=True)
register("mcc", "Matthews correlation", "correlation", higher_is_better=True)


class ClassMetric(Metric):
    """The class with the highest score is the output."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._table = np.zeros((len(names), len(names)), np.int64)  # how often each class (row) was taken for each
        self._shown: list[tuple[str, int, int]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        truth, said = batch.labels.tolist(), outputs.argmax(-1).tolist()
        np.add.at(self._table, (truth, said), 1)
        self._shown += zip(map(read_of, batch.texts), truth, said, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        if not self._table.any():
            return {}
        each = f1(self._table)
        found = {
            "accuracy": MetricValue(float(self._table.trace() / self._table.sum())),
            "macro_f1": MetricValue(float(np.nanmean(each)), "the mean over the classes in truth or outputs"),
            "mcc": MetricValue(mcc(self._table)),
        }
        if len(self.names) == 2:
            found["f1"] = MetricValue(float(np.nan_to_num(each[1])), f"of {self.names[1]!r}")
        return found

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            {"source": text, "target": self.names[truth], "output": self.names[said]}
            for text, truth, said in evenly(self._shown, count)
        ]


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
