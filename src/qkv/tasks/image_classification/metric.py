"""Accuracy, top-5 accuracy and F1 of classes of pictures, with the likeliest classes of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ...data.media.png import png
from ...metrics.base import MetricValue
from ...metrics.display import register
from ..text_classification.metric import ClassMetric

register("top5", "Top-5 accuracy", "fraction", higher_is_better=True)

T = TypeVar("T")

_TOP = 5
_SHOWN = 3  # classes with their probabilities


class ImageClassMetric(ClassMetric):
    """As `ClassMetric`; with more than five classes also `top5`, how often the truth is among the five highest scores."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._among = 0
        self._pictures: Some[tuple[dict[str, Any], int, list[float]]] = Some(64)

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        truth, scores = batch.labels.cpu(), outputs
        np.add.at(self._table, (truth.tolist(), scores.argmax(-1).tolist()), 1)
        top = scores.topk(min(_TOP, scores.shape[1]), -1).indices
        self._among += int((top == truth[:, None]).sum())
        for example, label, row in zip(batch.texts, truth.tolist(), scores.softmax(-1).tolist(), strict=True):
            self._pictures.add((example, label, row))

    def compute(self) -> dict[str, MetricValue]:
        found = super().compute()
        if found and len(self.names) > _TOP:
            found["top5"] = MetricValue(self._among / int(self._table.sum()))
        return found

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self._sample(*one) for one in self._pictures.take(count)]

    def _sample(self, example: dict[str, Any], label: int, row: list[float]) -> dict[str, Any]:
        order = np.argsort(row)[::-1][:_SHOWN].tolist()
        sample = {"source": example.get("where", ""), "target": self.names[label], "output": self.names[order[0]]}
        frames = example["video"] if "video" in example else [example["image"]]
        scores = [[self.names[i], round(row[i], 4)] for i in order]
        sample["picture"] = {"kind": "scores", "frames": [*map(png, frames)], "scores": scores}
        return sample


class Some(Generic[T]):
    """At most so many of what comes, each as likely as any other (Vitter 1985, algorithm R), the same every time."""

    def __init__(self, most: int) -> None:
        self._most, self._seen = most, 0
        self._kept: list[tuple[int, T]] = []
        self._random = np.random.default_rng(0)

    def add(self, one: T) -> None:
        place = len(self._kept) if self._seen < self._most else int(self._random.integers(self._seen + 1))
        if place < self._most:
            self._kept[place : place + 1] = [(self._seen, one)]
        self._seen += 1

    def take(self, count: int) -> list[T]:
        """At most so many of those kept, in the order in which they came."""
        count = min(count, len(self._kept))
        ordered = [one for _, one in sorted(self._kept, key=lambda pair: pair[0])]
        return [ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count)]
