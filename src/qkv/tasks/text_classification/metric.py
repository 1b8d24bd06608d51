"""Accuracy, F1 and Matthews' correlation of classes of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ...metrics.base import Metric, MetricValue
from ...metrics.classification import f1, mcc
from ..samples import evenly, read_of


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
