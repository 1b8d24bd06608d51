"""Prediction of the classes of pictures and videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..classes import class_predictions
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .task import ImageClassify


@ImageClassify.predicts
def predict(task: ImageClassify, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """A `Classified` for each file. Raises ValueError for one that can't be read."""
    for part in in_parts(paths):
        examples = [{task.reads: task.read(path), "where": path} for path in part]
        yield from class_predictions(task, task.classes, trained, part, examples)
