"""Exact match and F1 of question answering (SQuAD), with the best span over all windows of a text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.squad import exact, token_f1
from ..samples import evenly


@dataclass
class AnsweredQuestion:
    """A question with the best answer in the windows read so far.

    start:       the character of the context with which the answer begins.
    score, none: the score of the answer, and the least score of "no answer".
    """

    example: dict[str, Any]
    answer: str = ""
    start: int = 0
    score: float = float("-inf")
    none: float = float("inf")


class AnswerMetric(Metric):
    """Reads scores (B, T, 2) of windows. In `batch.texts`, `"spans"` are the characters of the context that each token
    covers, from the token `"at"` on.

    The answer is the span of at most `longest` tokens with the highest score start + end in any window. If a question may
    be `unanswerable`, the prediction is "no answer" if the first token's score exceeds it in every window by more than
    `margin`.
    """

    def __init__(self, longest: int, unanswerable: bool, margin: float = 0.0) -> None:
        self._longest, self._unanswerable, self._margin = longest, unanswerable, margin
        self._all: dict[int, AnsweredQuestion] = {}

    def update(self, outputs: Tensor, batch: Batch) -> None:
        for scores, example in zip(outputs, batch.texts, strict=True):
            question = self._all.setdefault(id(example["text"]), AnsweredQuestion(example))
            spans, at = example["spans"], example["at"]
            first, last, score = best_span(scores[at : at + len(spans)], self._longest)
            if score > question.score:
                question.start, question.score = spans[first][0], score
                question.answer = example["context"][question.start : spans[last][1]]
            question.none = min(question.none, float(scores[0].sum()))

    def question(self, example: dict[str, Any]) -> AnsweredQuestion:
        """Return the results for an example, whose "text" is the same object as in its windows."""
        return self._all[id(example["text"])]

    def answer(self, question: AnsweredQuestion) -> str:
        """Return the best answer; "" for no answer."""
        nothing = self._unanswerable and question.none - question.score > self._margin
        return "" if nothing else question.answer

    def compute(self) -> dict[str, MetricValue]:
        pairs = [(self.answer(question), question.example["answers"]) for question in self._all.values()]
        if not pairs:
            return {}
        n, none = len(pairs), sum(truths == ("",) for _, truths in pairs)
        how = f"as SQuAD's script, {n:,} questions" + (f", {none:,} of them without an answer" if none else "")
        return {
            "exact": MetricValue(sum(exact(*pair) for pair in pairs) / n, how),
            "token_f1": MetricValue(sum(token_f1(*pair) for pair in pairs) / n, how),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self._sample(question) for question in evenly(list(self._all.values()), count)]

    def extremes(self) -> Extremes | None:
        ranking = Ranking("token_f1")
        for question in self._all.values():
            score = token_f1(self.answer(question), question.example["answers"])
            ranking.add(score, partial(self._sample, question))
        return ranking.extremes()

    def _sample(self, question: AnsweredQuestion) -> dict[str, Any]:
        example, none = question.example, "(no answer)"
        output, target = self.answer(question) or none, example["answers"][0] or none
        return {"source": f"{example['question']}\n{example['context']}", "output": output, "target": target}


def best_span(scores: Tensor, longest: int) -> tuple[int, int, float]:
    """(first, last, score) of the span of at most `longest` tokens with the highest score start + end; scores are (T, 2)."""
    n = len(scores)
    sums = scores[:, 0, None] + scores[None, :, 1]
    fits = torch.ones(n, n, dtype=torch.bool).triu().tril(longest - 1)
    place = int(sums.masked_fill(~fits, float("-inf")).argmax())
    return place // n, place % n, float(sums.flatten()[place])
