"""Prediction of question answering: answers to new questions, as spans of new texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core.batch import Batch
from ....data.source import Example
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches, split_tabs
from .task import Answer

NONE = "(no answer)"


@dataclass(frozen=True)
class Found:
    """An answer, and the index of its first character in the context; both None for no answer.

    score, none: the score start + end of the best span, and the least score of "no answer" in any window.
    """

    answer: str | None
    start: int | None
    score: float
    none: float


@Answer.predicts
def predict(task: Answer, trained: TrainedModel, lines: Sequence[str], **options: Any) -> list[Prediction]:
    """Predict a `Found` for each line QUESTION<tab>CONTEXT. A long context is read in windows; the best answer counts."""
    examples = [_example(line, f"text {number}") for number, line in enumerate(lines, 1)]
    metric = task.metric(trained.tokenizer)
    for _, batch in prediction_batches(trained, task, examples):
        metric.evaluate(trained.model, _read_by_both(trained, batch))
    predictions = []
    for line, example in zip(lines, examples, strict=True):
        question = metric.question(example)
        answer = metric.answer(question)
        result = Found(answer or None, question.start if answer else None, question.score, question.none)
        predictions.append(Prediction(line, result, answer or NONE, vars(result)))
    return predictions


def _read_by_both(trained: TrainedModel, batch: Batch) -> Batch:
    """Return the batch. For an encoder–decoder (BART), add a target: the same texts, shifted by one token."""
    if not trained.model.is_encoder_decoder:
        return batch
    ids, layout = batch.inputs["ids"], batch.inputs["layout"]
    target = ids.clone()
    for row, behind, real in zip(ids, target, layout.valid.expand_as(ids), strict=True):
        behind[real] = ids.new_tensor(trained.shifted(row[real].tolist()))
    return replace(batch, inputs={**batch.inputs, "target": target, "target_layout": layout})


def _example(line: str, where: str) -> Example:
    question, context = split_tabs(line, ("QUESTION", "CONTEXT"), where)
    # A new object for each question, as the metric recognizes a question's windows by it
    text = f"{question}\n{context}"
    return {"text": text, "question": question, "context": context, "where": where}
