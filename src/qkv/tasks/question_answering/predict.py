"""The answer to a question, as a stretch of a given text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...data.source import Example
from ..asking import asked, parted
from ..prediction import Prediction
from .task import Answer

if TYPE_CHECKING:
    from ...inference.run import Run

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


def answered(run: Run, task: Answer, lines: Sequence[str]) -> list[Prediction]:
    """A `Found` for each line, which is a question, a tab, and the text that it is about.

    A long text is read in windows; the answer is the best of all of them.
    """
    examples = [_example(line, f"text {number}") for number, line in enumerate(lines, 1)]
    metric = task.metric(run.tokenizer)
    for _, batch in asked(run, task, examples):
        metric.evaluate(run.model, batch)
    made = []
    for line, example in zip(lines, examples, strict=True):
        best = metric.asked(example)
        said = metric.said(best)
        found = Found(said or None, best.start if said else None, best.score, best.none)
        made.append(Prediction(line, found, said or NONE, vars(found)))
    return made


def _example(line: str, where: str) -> Example:
    question, context = parted(line, ("QUESTION", "CONTEXT"), where)
    # The text is an object of its own, by which the metric knows the windows of a question.
    text = f"{question}\n{context}"
    return {"text": text, "question": question, "context": context, "answers": ("",), "starts": (0,), "where": where}
