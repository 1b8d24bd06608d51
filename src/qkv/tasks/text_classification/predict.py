"""Prediction of the classes of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..classes import class_predictions, split_pairs
from ..prediction import Prediction, TrainedModel
from .task import Classify


@Classify.predicts
def predict(task: Classify, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """A `Classified` for each text, or for each pair of texts with a tab between. Long texts are cut."""
    texts, pairs = split_pairs(lines)
    rows = [(text,) for text in texts] if pairs is None else zip(texts, pairs, strict=True)
    for number, row in enumerate(rows := list(rows), 1):
        if not all(text.strip() for text in row):
            raise ValueError(f"text {number} is empty, so there is nothing to read")
    examples = [dict(zip(("text", "pair"), row, strict=False)) for row in rows]
    return class_predictions(task.replace(over_long="cut"), task.classes, trained, lines, examples)
