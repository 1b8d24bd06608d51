"""Prediction of the classes of sounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...data.media import audio
from ..classes import class_predictions
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .task import Sound


@Sound.predicts
def predict(task: Sound, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """A `Classified` for each file. Raises ValueError for one that holds no sound."""
    for part in in_parts(paths):
        sounds = ((path, *audio.read(path)) for path in part)
        examples = [{"audio": samples, "rate": rate, "where": path} for path, samples, rate in sounds]
        yield from class_predictions(task, task.classes, trained, part, examples)
