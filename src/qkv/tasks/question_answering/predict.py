"""Prediction of answers to questions, as spans of given texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...data.source import Example
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches, split_tabs
from .task import Answer

NONE = "(no answer)"


@dataclass(frozen=True)
class Found:
    """An answer with the character of the context that it begins with; both None where there is no answer.

    score: of the best span, start + end, and none: of "no answer", the least of any window.
    """

    answer: str | None
    start: int | None
    score: float
    none: float


@Answer.predicts
def predict(task: Answer, trained: TrainedModel, lines: Sequence[str], **options: Any) -> list[Prediction]:
    """A `Found` for each line, which is a question, a tab, and the text that it is about.

    A long text is read in windows; the answer is the best of all of them.
    """
    examples = [_example(line, f"text {number}") for number, line in enumerate(lines, 1)]
    metric = task.metric(trained.tokenizer)
    for _, batch in prediction_batches(trained, task, examples):
        metric.evaluate(trained.model, batch)
    made = []
    for line, example in zip(lines, examples, strict=True):
        best = metric.asked(example)
        said = metric.said(best)
        found = Found(said or None, best.start if said else None, best.score, best.none)
        made.append(Prediction(line, found, said or NONE, vars(found)))
    return made


def _example(line: str, where: str) -> Example:
    question, context = split_tabs(line, ("QUESTION", "CONTEXT"), where)
    # The text is an object of its own, by which the metric knows the windows of a question.
    text = f"{question}\n{context}"
    return {"text": text, "question": question, "context": context, "where": where}
