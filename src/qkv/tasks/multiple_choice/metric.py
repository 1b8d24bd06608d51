"""Accuracy of multiple choice."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...core.batch import Batch
from ...metrics.base import Metric, MetricValue
from ...metrics.display import register
from ..samples import evenly

register("accuracy", scale="fraction", higher_is_better=True)


class ChoiceMetric(Metric):
    """The candidate with the highest score is chosen."""

    def __init__(self) -> None:
        self._shown: list[tuple[dict[str, Any], int, int]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        said = of_candidates(outputs, batch).argmax(-1).tolist()
        self._shown += zip(batch.texts, batch.labels.tolist(), said, strict=True)

    def compute(self) -> dict[str, MetricValue]:
        if not self._shown:
            return {}
        return {"accuracy": MetricValue(sum(truth == said for _, truth, said in self._shown) / len(self._shown))}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            {"source": example["text"], "target": example["choices"][truth], "output": example["choices"][said]}
            for example, truth, said in evenly(self._shown, count)
        ]


def of_candidates(outputs: Tensor, batch: Batch) -> Tensor:
    """(B, K): the score of each candidate, −∞ where there is none. Each output is one; the targets' `rows` (B, K) say whose,
    −1 for none."""
    rows = batch.targets["rows"].cpu()
    return outputs.flatten()[rows.clamp(min=0)].masked_fill(rows < 0, float("-inf"))
