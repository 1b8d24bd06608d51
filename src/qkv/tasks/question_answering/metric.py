"""SQuAD's exact match and F1 of answers, the best spans over all windows of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.batch import Batch
from ...metrics.base import Metric, MetricValue
from ...metrics.squad import exact, token_f1


@dataclass
class Asked:
    """A question with the best answer in what was read of its text so far, where that begins in the context, and how sure
    it is that there is none."""

    example: dict[str, Any]
    answer: str = ""
    start: int = 0
    score: float = float("-inf")
    none: float = float("inf")


class AnswerMetric(Metric):
    """Reads scores (B, T, 2) of windows: `batch.texts` say by `"spans"` which characters of the context each token from
    `"at"` on shows.

    The answer is the span with the highest score start + end in any window, at most `longest` tokens. Where there may be
    none (`unanswerable`), there is none if the first token scores higher in every window, by more than `margin`.
    """

    def __init__(self, longest: int, unanswerable: bool, margin: float = 0.0) -> None:
        self._longest, self._unanswerable, self._margin = longest, unanswerable, margin
        self._all: dict[int, Asked] = {}

    def update(self, outputs: Tensor, batch: Batch) -> None:
        for scores, example in zip(outputs, batch.texts, strict=True):
            asked = self._all.setdefault(id(example["text"]), Asked(example))
            spans, at = example["spans"], example["at"]
            first, last, score = best_span(scores[at : at + len(spans)], self._longest)
            if score > asked.score:
                asked.start, asked.score = spans[first][0], score
                asked.answer = example["context"][asked.start : spans[last][1]]
            asked.none = min(asked.none, float(scores[0].sum()))

    def asked(self, example: dict[str, Any]) -> Asked:
        """What was found for an example, whose "text" is the very object that its windows were made of."""
        return self._all[id(example["text"])]

    def said(self, asked: Asked) -> str:
        """The best answer; "" where it is that there is none."""
        nothing = self._unanswerable and asked.none - asked.score > self._margin
        return "" if nothing else asked.answer

    def compute(self) -> dict[str, MetricValue]:
        pairs = [(self.said(asked), asked.example["answers"]) for asked in self._all.values()]
        if not pairs:
            return {}
        n, none = len(pairs), sum(truths == ("",) for _, truths in pairs)
        how = f"as SQuAD's script, {n:,} questions" + (f", {none:,} of them without an answer" if none else "")
        return {
            "exact": MetricValue(sum(exact(*pair) for pair in pairs) / n, how),
            "token_f1": MetricValue(sum(token_f1(*pair) for pair in pairs) / n, how),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        shown = list(self._all.values())
        count = min(count, len(shown))
        return [self._sample(shown[(2 * i + 1) * len(shown) // (2 * count)]) for i in range(count)]

    def _sample(self, asked: Asked) -> dict[str, Any]:
        example, none = asked.example, "(no answer)"
        output, target = self.said(asked) or none, example["answers"][0] or none
        return {"source": f"{example['question']}\n{example['context']}", "output": output, "target": target}


def best_span(scores: Tensor, longest: int) -> tuple[int, int, float]:
    """(first, last, start + end) of the span of at most `longest` tokens whose score is highest; scores are (T, 2)."""
    n = len(scores)
    sums = scores[:, 0, None] + scores[None, :, 1]
    fits = torch.ones(n, n, dtype=torch.bool).triu().tril(longest - 1)
    place = int(sums.masked_fill(~fits, float("-inf")).argmax())
    return place // n, place % n, float(sums.flatten()[place])
