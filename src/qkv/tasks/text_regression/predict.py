"""Prediction of numbers that belong to texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...data.source import Example
from ...metrics.base import model_outputs
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches, split_tabs
from .task import Regress


@Regress.predicts
def predict(task: Regress, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """The score of each line, in the units of the training data: of a text, or of two with a tab between, read together."""
    examples = [_example(line, f"text {number}") for number, line in enumerate(lines, 1)]
    scores: dict[int, float] = {}
    for numbers, batch in prediction_batches(trained, task, examples):
        scores |= zip(numbers, map(task.score, model_outputs(trained.model, batch).flatten().tolist()), strict=True)
    return [number_prediction(line, scores[i]) for i, line in enumerate(lines)]


def _example(line: str, where: str) -> Example:
    texts = split_tabs(line, ("TEXT", "TEXT") if "\t" in line else ("TEXT",), where)
    named = dict(zip(("text", "pair"), texts, strict=False))
    return {**named, "where": where}


def number_prediction(line: str, score: float) -> Prediction:
    """A number as a prediction."""
    return Prediction(line, score, f"{score:.4f}", {"score": score})
