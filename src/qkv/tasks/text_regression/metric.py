"""Numbers beside the truth: how well they go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ...data.batching.numpy_batch import Array
from ...metrics.base import Metric, MetricValue
from ...metrics.display import register
from ..samples import evenly, read_of

register("spearman", scale="correlation", higher_is_better=True)
register("pearson", scale="correlation", higher_is_better=True)


class NumberMetric(Metric):
    """The head's only output is the number, of which `score` makes what it means."""

    def __init__(self, score: Callable[[float], float]) -> None:
        self._score = score
        self._shown: list[tuple[str, float, float]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        numbers = outputs.reshape(len(outputs), -1)[:, 0].tolist()
        self._shown += zip(map(read_of, batch.texts), batch.labels.tolist(), numbers, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        return correlations([truth for _, truth, _ in self._shown], [said for _, _, said in self._shown])

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            {
                "source": text,
                "target": f"{self._score(truth):.2f}",
                "output": f"{self._score(said):.2f}",
                "graded": True,
            }
            for text, truth, said in evenly(self._shown, count)
        ]


def correlations(truth: Sequence[float], said: Sequence[float]) -> dict[str, MetricValue]:
    """Of ranks (Spearman) and of values (Pearson), −1 to 1; 0 where either side is the same everywhere, and NaN where there
    is nothing, or a value is NaN or infinite."""
    a, b = np.asarray(truth, float), np.asarray(said, float)
    if not len(a) or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return {name: MetricValue(math.nan) for name in ("spearman", "pearson")}
    return {"spearman": MetricValue(pearson(ranks(a), ranks(b))), "pearson": MetricValue(pearson(a, b))}


def pearson(a: Array, b: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:  # of equal values the mean may differ by a rounding, which would correlate
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else 0.0


def ranks(values: Array) -> Array:
    """1 for the least; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Array = (ends - (counts - 1) / 2)[places]
    return shared
