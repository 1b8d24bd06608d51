"""The answer to a question, as a stretch of a given text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ...core.batch import Batch
from ...data.framing import frame_of
from ...data.sources import Example
from ...data.tasks.answer import Answer
from ..long_texts import chooses_global
from .asking import asked, parted
from .prediction import Prediction

if TYPE_CHECKING:
    from ..load import Run

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
    judge = task.judge(run.tokenizer)
    for _, batch in asked(run, task, examples):
        judge.read(run.model, _with_global_questions(run, batch) if chooses_global(run) else batch)
    made = []
    for line, example in zip(lines, examples, strict=True):
        best = judge.asked(example)
        said = judge.said(best)
        found = Found(said or None, best.start if said else None, best.score, best.none)
        made.append(Prediction(line, found, said or NONE, vars(found)))
    return made


def _with_global_questions(run: Run, batch: Batch) -> Batch:
    """Longformer's way (Beltagy et al. 2020, §3): the question, and what stands before it, sees all and is seen by all."""
    between = len(frame_of(run.text_model.tokenizer, 2).tokens[1])
    layout = batch.inputs["layout"]
    ends = torch.tensor([told["at"] - between for told in batch.texts], device=layout.device)
    question = torch.arange(layout.shape[1], device=layout.device) < ends[:, None]
    return replace(batch, inputs={**batch.inputs, "layout": layout.with_global(question)})


def _example(line: str, where: str) -> Example:
    question, context = parted(line, ("QUESTION", "CONTEXT"), where)
    # The text is an object of its own, by which the judge knows the windows of a question.
    text = f"{question}\n{context}"
    return {"text": text, "question": question, "context": context, "answers": ("",), "starts": (0,), "where": where}
