"""Accuracy, F1 and Matthews' correlation of classification."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.baselines import Baseline
from ....core.metrics.classification import f1, mcc
from ....core.metrics.extremes import Extremes, Ranking
from ....core.spec import brief
from ....data.source import Example
from ..samples import evenly, read_of


def scores(names: Sequence[str], table: NDArray[np.int64]) -> dict[str, float]:
    """The metrics of a confusion matrix (true × predicted)."""
    metric = ClassMetric(names)
    metric._table += table
    return {name: one.value for name, one in metric.compute().items()}


def most_frequent(confusions: Sequence[tuple[str, str, int]]) -> Baseline:
    """The class that is right most often, given to every example; from the true classes of `ClassMetric.confusions`."""
    names = sorted({name for *pair, _ in confusions for name in pair})
    table = np.zeros((len(names), len(names)), np.int64)
    for truth, _, count in confusions:
        table[names.index(truth), 0] += count
    usual = int(table[:, 0].argmax())
    return Baseline("the most frequent class", scores(names, np.roll(table, usual, 1)), f"always {brief(names[usual])}")


class ClassMetric(Metric):
    """Measures classification; the predicted class is the one with the highest score."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._table = np.zeros((len(names), len(names)), np.int64)  # true classes (rows) × predicted ones
        self._shown: list[tuple[str, int, int]] = []
        self._ranking = Ranking("true_class_probability")

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        truth, predicted = batch.labels.tolist(), outputs.argmax(-1).tolist()
        np.add.at(self._table, (truth, predicted), 1)
        self._shown += zip(map(read_of, batch.texts), truth, predicted, strict=True)
        self.rank(outputs, batch)

    def rank(self, outputs: Tensor, batch: Batch) -> None:
        """Rank the examples by the probability of the true class."""
        assert batch.labels is not None
        for example, truth, row in zip(batch.texts, batch.labels.tolist(), outputs.softmax(-1), strict=True):
            self._ranking.add(float(row[truth]), partial(self.sample, example, truth, row))

    def compute(self) -> dict[str, MetricValue]:
        if not self._table.any():
            return {}
        each = f1(self._table)
        values = {
            "accuracy": MetricValue(float(self._table.trace() / self._table.sum())),
            "macro_f1": MetricValue(float(np.nanmean(each)), "the mean over the classes in truth or outputs"),
            "mcc": MetricValue(mcc(self._table)),
        }
        if len(self.names) == 2:
            values["f1"] = MetricValue(float(np.nan_to_num(each[1])), f"of {brief(self.names[1])}")
        return values

    def confusions(self) -> list[tuple[str, str, int]]:
        pairs = np.argwhere(self._table).tolist()
        return [(self.names[truth], self.names[output], int(self._table[truth, output])) for truth, output in pairs]

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            {"source": text, "target": self.names[truth], "output": self.names[predicted]}
            for text, truth, predicted in evenly(self._shown, count)
        ]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def sample(self, example: Example, truth: int, probabilities: Tensor) -> dict[str, Any]:
        """Return one example as a sample."""
        output = self.names[int(probabilities.argmax())]
        return {"source": read_of(example), "target": self.names[truth], "output": output}
