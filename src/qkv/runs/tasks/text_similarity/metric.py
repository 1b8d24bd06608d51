"""Correlations of cosines with true similarities (text similarity), and retrieval of positive pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.correlation import correlations
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.retrieval import Retrieval
from ..samples import evenly, read_of

register("cosine", "Cosine of the pair", "correlation", higher_is_better=True, part=True)


class SimilarityMetric(Metric):
    """Measures models that output a vector for each text; the targets' `rows` (B, 2) are the rows of each pair. Pairs
    without labels are positive: then accuracy is the fraction of first texts whose nearest second text in the batch is their
    own, and the metrics of retrieval rank all second texts of the split for each first text."""

    def __init__(self) -> None:
        self._shown: list[tuple[str, float | None, float]] = []
        self._right: list[bool] = []
        self._retrieval = Retrieval()

    def update(self, outputs: Tensor, batch: Batch) -> None:
        first, second = _pairs(outputs, batch)
        scores = cosines(outputs, batch).tolist()
        truths = [None] * len(scores) if batch.labels is None else batch.labels.tolist()
        self._right += ((first @ second.T).argmax(-1) == torch.arange(len(first))).tolist()
        if batch.labels is None:
            queries = [example["text"] for example in batch.texts]
            answers = [example.get("pair", example["text"]) for example in batch.texts]
            self._retrieval.update(first, second, queries, answers)
        self._shown += zip(map(read_of, batch.texts), truths, scores, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        labelled = [(truth, output) for _, truth, output in self._shown if truth is not None]
        if labelled:
            return correlations(*zip(*labelled, strict=True))
        if not self._right:
            return {}
        how = "whether a text's own pair is the nearest of the batch's"
        accuracy = MetricValue(sum(self._right) / len(self._right), how)
        return {"accuracy": accuracy, **self._retrieval.compute()}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [_sample(*one) for one in evenly(self._shown, count)]

    def extremes(self) -> Extremes | None:
        """By the error of labelled pairs, by the cosine of positive ones."""
        labelled = any(truth is not None for _, truth, _ in self._shown)
        ranking = Ranking("absolute_error" if labelled else "cosine")
        for one in self._shown:
            _, truth, output = one
            ranking.add(output if truth is None else abs(output - truth), partial(_sample, *one))
        return ranking.extremes()


def _sample(text: str, truth: float | None, output: float) -> dict[str, Any]:
    labelled = {} if truth is None else {"target": f"{truth:.2f}", "graded": True}
    return {"source": text, "output": f"{output:.2f}", **labelled}


def cosines(outputs: Tensor, batch: Batch) -> Tensor:
    """The cosine of the two vectors of each pair."""
    first, second = _pairs(outputs, batch)
    return (first * second).sum(-1)


def _pairs(outputs: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    """The two vectors of each pair, normalized to length 1."""
    rows = batch.targets["rows"].cpu()
    return tuple(F.normalize(outputs[rows[:, side]], dim=-1) for side in (0, 1))
