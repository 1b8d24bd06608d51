"""Prediction of which candidate answers a question or continues a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...data.source import Example
from ...metrics.base import model_outputs
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches
from .metric import of_candidates
from .task import Choice


@Choice.predicts
def predict(task: Choice, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """The number of the candidate, from 0, of each line, which is a text, a tab, and candidates with tabs between; `fields`
    have the probability of each candidate, in their order.
    """
    examples = [_example(line, f"text {number}") for number, line in enumerate(lines, 1)]
    shares: dict[int, list[float]] = {}
    for numbers, batch in prediction_batches(trained, task, examples):
        shares |= zip(
            numbers, of_candidates(model_outputs(trained.model, batch), batch).softmax(-1).tolist(), strict=True
        )
    return [
        _prediction(line, one["choices"], shares[i]) for i, (line, one) in enumerate(zip(lines, examples, strict=True))
    ]


def _example(line: str, where: str) -> Example:
    text, *choices = line.split("\t")
    if len(choices) < 2 or not all(part.strip() for part in (text, *choices)):
        raise ValueError(f"{where} is {line[:60]!r}, and this run reads CONTEXT<tab>CHOICE<tab>CHOICE<tab>…")
    return {"text": text, "choices": choices, "where": where}


def _prediction(line: str, choices: Sequence[str], shares: Sequence[float]) -> Prediction:
    pairs = list(zip(choices, shares, strict=False))  # behind the last, a longer line of the batch has others
    number = max(range(len(pairs)), key=lambda i: pairs[i][1])
    said = "  ".join(f"{choice} {share:.3f}" for choice, share in sorted(pairs, key=lambda pair: -pair[1]))
    told = [{"choice": choice, "probability": share} for choice, share in pairs]
    return Prediction(line, number, said, {"number": number, "choice": choices[number], "choices": told})
