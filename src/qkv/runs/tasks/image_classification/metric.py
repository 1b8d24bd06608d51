"""Accuracy, top-5 accuracy and F1 of image classification, with the most probable classes of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import MetricValue
from ....core.metrics.display import register
from ....data.media.images import Pixels, decode
from ....data.media.png import png
from ....data.source import Example, Skipped
from ..samples import Reservoir
from ..text_classification.metric import ClassMetric

register("top5", "Top-5 accuracy", "fraction", higher_is_better=True)

_TOP = 5
_SHOWN = 3  # classes with their probabilities
_SIDE = 320  # pixels of a picture in the report


class ImageClassMetric(ClassMetric):
    """`ClassMetric`, and for more than five classes `top5`, how often the true class has one of the five highest scores."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._among = 0
        self._pictures: Reservoir[tuple[Example, int, Tensor]] = Reservoir(64)

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        truth = batch.labels.cpu()
        np.add.at(self._table, (truth.tolist(), outputs.argmax(-1).tolist()), 1)
        top = outputs.topk(min(_TOP, outputs.shape[1]), -1).indices
        self._among += int((top == truth[:, None]).sum())
        for example, label, row in zip(batch.texts, truth.tolist(), outputs.softmax(-1), strict=True):
            self._pictures.add((example, label, row))
        self.rank(outputs, batch)

    def compute(self) -> dict[str, MetricValue]:
        values = super().compute()
        if values and len(self.names) > _TOP:
            values["top5"] = MetricValue(self._among / int(self._table.sum()))
        return values

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self.sample(*one) for one in self._pictures.take(count)]

    def sample(self, example: Example, truth: int, probabilities: Tensor) -> dict[str, Any]:
        row = probabilities.tolist()
        order = np.argsort(row)[::-1][:_SHOWN].tolist()
        sample = {"source": example.get("where", ""), "target": self.names[truth], "output": self.names[order[0]]}
        frames = example["video"] if "video" in example else [_decoded(example["image"])]
        scores = [[self.names[i], round(row[i], 4)] for i in order]
        sample["picture"] = {"kind": "scores", "frames": [png(frame, _SIDE) for frame in frames], "scores": scores}
        return sample


def _decoded(image: Pixels | bytes | Path) -> Pixels:
    """The pixels of a picture that the model has read, whatever form the source gave it in."""
    if isinstance(image, np.ndarray):
        return image
    pixels = decode(image if isinstance(image, bytes) else image.read_bytes())
    assert not isinstance(pixels, Skipped)
    return pixels
