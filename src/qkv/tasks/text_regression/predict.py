"""How alike two texts are, or what number belongs to a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...data.source import Example
from ...inference.classify import numbers, similarity
from ...inference.predict_classes import sides
from ...metrics.base import model_outputs
from ..asking import asked, parted
from ..prediction import Prediction
from .task import Regress

if TYPE_CHECKING:
    from ...inference.run import Run


def similar(run: Run, lines: Sequence[str]) -> list[Prediction]:
    """The cosine of each line's vectors, which is a text, a tab, and another."""
    pairs = [parted(line, ("TEXT", "TEXT"), f"text {number}") for number, line in enumerate(lines, 1)]
    scores = similarity(run, [a for a, _ in pairs], [b for _, b in pairs])
    return [_prediction(line, score) for line, score in zip(lines, scores, strict=True)]


def scored(run: Run, task: Regress, lines: Sequence[str]) -> list[Prediction]:
    """The score of each line, in the units of the training data: of a text, or of two with a tab between, read together."""
    examples = [_example(task, line, f"text {number}") for number, line in enumerate(lines, 1)]
    scores: dict[int, float] = {}
    for of, batch in asked(run, task, examples):
        scores |= zip(of, map(task.score, model_outputs(run.model, batch).flatten().tolist()), strict=True)
    return [_prediction(line, scores[i]) for i, line in enumerate(lines)]


def rated(run: Run, lines: Sequence[str]) -> list[Prediction]:
    """The number of each text, or of each pair of texts with a tab between, as a model of the Hub gives it."""
    return [_prediction(line, score) for line, score in zip(lines, numbers(run, *sides(lines)), strict=True)]


def _example(task: Regress, line: str, where: str) -> Example:
    texts = parted(line, ("TEXT", "TEXT") if "\t" in line else ("TEXT",), where)
    named = dict(zip(("text", "pair"), texts, strict=False))
    return {**named, "score": task.center or 0.0, "where": where}  # the score is one that there is


def _prediction(line: str, score: float) -> Prediction:
    return Prediction(line, score, f"{score:.4f}", {"score": score})
