"""Correlations of cosines with true similarities, and accuracy of retrieval in a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.batch import Batch
from ...metrics.base import Metric, MetricValue
from ...metrics.correlation import correlations
from ..samples import evenly, read_of


class SimilarityMetric(Metric):
    """The outputs are vectors, the targets' `rows` (B, 2) say which two are a pair. Pairs without a label belong together:
    then what counts is whether the nearest of the batch's second vectors is the first one's own."""

    def __init__(self) -> None:
        self._shown: list[tuple[str, float | None, float]] = []
        self._right: list[bool] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        first, second = _pairs(outputs, batch)
        found = cosines(outputs, batch).tolist()
        truths = [None] * len(found) if batch.labels is None else batch.labels.tolist()
        self._right += ((first @ second.T).argmax(-1) == torch.arange(len(first))).tolist()
        self._shown += zip(map(read_of, batch.texts), truths, found, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        judged = [(truth, said) for _, truth, said in self._shown if truth is not None]
        if judged:
            return correlations(*zip(*judged, strict=True))
        if not self._right:
            return {}
        how = "whether a text's own pair is the nearest of the batch's"
        return {"accuracy": MetricValue(sum(self._right) / len(self._right), how)}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            {
                "source": text,
                "output": f"{said:.2f}",
                **({} if truth is None else {"target": f"{truth:.2f}", "graded": True}),
            }
            for text, truth, said in evenly(self._shown, count)
        ]


def cosines(outputs: Tensor, batch: Batch) -> Tensor:
    """The cosine of both vectors of each pair."""
    first, second = _pairs(outputs, batch)
    return (first * second).sum(-1)


def _pairs(outputs: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    """Both vectors of each pair, of length 1."""
    rows = batch.targets["rows"].cpu()
    return tuple(F.normalize(outputs[rows[:, side]], dim=-1) for side in (0, 1))
