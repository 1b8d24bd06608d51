"""Accuracy and F1 of classes of sounds, with spectrograms of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ..samples import evenly
from ..text_classification.metric import ClassMetric

_KEPT = 200  # sounds from which samples are chosen


class SoundClassMetric(ClassMetric):
    """As `ClassMetric`; its samples are spectrograms."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._heard: list[dict[str, Any]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        super().update(outputs, batch)
        rows = zip(batch.texts, batch.labels.tolist(), outputs.argmax(-1).tolist(), strict=True)
        for example, truth, said in list(rows)[: _KEPT - len(self._heard)]:
            mels = np.round(example["mels"], 2).tolist()
            picture = {"kind": "spectrogram", "values": mels}
            names = {"target": self.names[truth], "output": self.names[said]}
            self._heard.append({"source": example["where"], **names, "picture": picture})

    def samples(self, count: int) -> list[dict[str, Any]]:
        return evenly(self._heard, count)
