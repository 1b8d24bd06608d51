"""Correlations of predicted scores with true ones (text regression)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import floor, isfinite, log10
from typing import Any

from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.correlation import correlations
from ....core.metrics.extremes import Extremes, Ranking
from ..samples import evenly, read_of


class NumberMetric(Metric):
    """Measures models whose only output is a number, which `score` converts to the units of the data."""

    def __init__(self, score: Callable[[float], float]) -> None:
        self._score = score
        self._shown: list[tuple[str, float, float]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        numbers = outputs.reshape(len(outputs), -1)[:, 0].tolist()
        self._shown += zip(map(read_of, batch.texts), batch.labels.tolist(), numbers, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        return correlations([truth for _, truth, _ in self._shown], [predicted for _, _, predicted in self._shown])

    def samples(self, count: int) -> list[dict[str, Any]]:
        places = self._places()
        return [self._sample(*one, places) for one in evenly(self._shown, count)]

    def extremes(self) -> Extremes | None:
        ranking, places = Ranking("absolute_error"), self._places()
        for one in self._shown:
            _, truth, output = one
            ranking.add(abs(self._score(output) - self._score(truth)), partial(self._sample, *one, places))
        return ranking.extremes()

    def _places(self) -> int:
        """The decimal places with which scores are shown: at least 2, and enough to tell 10 steps of their range apart."""
        scores = [self._score(truth) for _, truth, _ in self._shown]
        spread = max(scores, default=0.0) - min(scores, default=0.0)
        return max(2, 1 - floor(log10(spread))) if isfinite(spread) and spread > 0 else 2

    def _sample(self, text: str, truth: float, output: float, places: int) -> dict[str, Any]:
        return {
            "source": text,
            "target": f"{self._score(truth):.{places}f}",
            "output": f"{self._score(output):.{places}f}",
            "graded": True,
        }
