"""Accuracy of multiple choice."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ..samples import evenly

register("accuracy", scale="fraction", higher_is_better=True)


class ChoiceMetric(Metric):
    """The share of examples whose right candidate has the highest score."""

    def __init__(self) -> None:
        self._shown: list[tuple[dict[str, Any], int, int]] = []
        self._ranking = Ranking("true_class_probability")

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        scores = candidate_scores(outputs, batch)
        rows = list(zip(batch.texts, batch.labels.tolist(), scores.argmax(-1).tolist(), strict=True))
        self._shown += rows
        for row, probabilities in zip(rows, scores.softmax(-1), strict=True):
            _, truth, _ = row
            self._ranking.add(float(probabilities[truth]), partial(_sample, *row))

    def compute(self) -> dict[str, MetricValue]:
        if not self._shown:
            return {}
        return {"accuracy": MetricValue(sum(truth == chosen for _, truth, chosen in self._shown) / len(self._shown))}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [_sample(*one) for one in evenly(self._shown, count)]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()


def _sample(example: dict[str, Any], truth: int, chosen: int) -> dict[str, Any]:
    return {"source": example["text"], "target": example["choices"][truth], "output": example["choices"][chosen]}


def candidate_scores(outputs: Tensor, batch: Batch) -> Tensor:
    """(B, K): the score of each candidate, −∞ for padding, from one output per row; the targets' `rows` (B, K) are the rows
    of each example, −1 for none."""
    rows = batch.targets["rows"].to(outputs.device)
    return outputs.flatten()[rows.clamp(min=0)].masked_fill(rows < 0, float("-inf"))
