"""Accuracy and F1 of sound classification, with spectrograms of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from torch import Tensor

from ....core.batch import Batch
from ....data.source import Example
from ....look.pictures import draws
from ....look.pictures.bitmap import bitmap
from ..samples import evenly
from ..text_classification.metric import ClassMetric

_KEPT = 200  # sounds from which samples are chosen


class SoundClassMetric(ClassMetric):
    """`ClassMetric`, with spectrograms as samples."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._heard: list[dict[str, Any]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        super().update(outputs, batch)
        rows = zip(batch.texts, batch.labels.tolist(), outputs, strict=True)
        self._heard += [self.sample(*row) for row in list(rows)[: _KEPT - len(self._heard)]]

    def samples(self, count: int) -> list[dict[str, Any]]:
        return evenly(self._heard, count)

    def sample(self, example: Example, truth: int, probabilities: Tensor) -> dict[str, Any]:
        picture = {"kind": "spectrogram", "values": np.round(example["mels"], 2).tolist()}
        return {**super().sample(example, truth, probabilities), "source": example["where"], "picture": picture}


@draws("spectrogram")
def spectrogram(picture: Mapping[str, Any]) -> Markup:
    """Draw `values`, rows of mel bands over time, the lowest first: time to the right, pitch upward, louder is brighter."""
    values = np.asarray(picture["values"], np.float32)[::-1]
    low, high = np.quantile(values, [0.02, 0.995])
    share = ((values - low) / max(float(high - low), 1e-6)).clip(0, 1)
    dark, middle, bright = (np.array(color, np.float32) for color in ((13, 8, 135), (203, 71, 119), (240, 249, 33)))
    first, second = (share * 2).clip(0, 1)[..., None], (share * 2 - 1).clip(0, 1)[..., None]
    colors = dark + (middle - dark) * first + (bright - middle) * second
    return bitmap(colors.astype(np.uint8), "spectrogram", scale=4)
