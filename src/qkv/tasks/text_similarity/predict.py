"""Prediction of how alike two texts are: the cosine of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...metrics.base import model_outputs
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches, split_tabs
from ..text_regression.predict import number_prediction
from .metric import cosines
from .task import Similarity


@Similarity.predicts
def predict(task: Similarity, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """The cosine of each line's vectors, which is a text, a tab, and another. Long texts are cut."""
    pairs = [split_tabs(line, ("TEXT", "TEXT"), f"text {number}") for number, line in enumerate(lines, 1)]
    examples = [{"text": a, "pair": b} for a, b in pairs]
    scores: dict[int, float] = {}
    for numbers, batch in prediction_batches(trained, task.replace(over_long="cut"), examples):
        vectors = model_outputs(trained.model, batch)
        scores |= zip(numbers, cosines(vectors, batch).tolist(), strict=True)
    return [number_prediction(line, scores[i]) for i, line in enumerate(lines)]
