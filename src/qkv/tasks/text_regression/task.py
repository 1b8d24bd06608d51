"""The task `regress`: a number for a text or for two texts read together."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ...data.source import Example, Skipped, Source
from ...data.task import Item
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..whole_texts import Sentences, number
from .metric import NumberMetric


class Regress(Sentences, kind="regress"):
    """The head is a `sequence-classifier` with one label, and learns (score − center) / spread by its squared error.

    low, high:      what a score lies between, where it has bounds.
    center, spread: by default mean and standard deviation of the training scores.
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "head": {"kind": "sequence-classifier"},
        "objective": {"kind": "labels"},
        "training": {"metric": "spearman", "mode": "max"},
    }

    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        scores = scores_of(self, source)
        return self._filled(inputs, center=float(np.mean(scores)), spread=float(np.std(scores)) or 1.0)

    @property
    def n_labels(self) -> int | None:
        return 1

    def labels(self, example: Example, inputs: Item) -> Any | Skipped:
        score = score_of(self, example, self.low, self.high)
        return score if isinstance(score, Skipped) else np.float32((score - (self.center or 0)) / (self.spread or 1))

    def score(self, output: float) -> float:
        """The score that the head means by its output."""
        return output * (self.spread or 1) + (self.center or 0)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return NumberMetric(self.score)

    def label_text(self, label: float) -> str:
        return f"{self.score(label):.4g}"


def score_of(task: Sentences, example: Example, low: float | None, high: float | None) -> float | Skipped:
    """The score of an example within its bounds; or why it is skipped."""
    given = example.get("score")
    found = number(given)
    if found is None:
        what = f"the score is {given!r}, which is no number" if "score" in example else "there is no score"
        return task._refused(example, f"{what}; name its column as data.score=…", "whose score is no number")
    if (low is not None and found < low) or (high is not None and found > high):
        return task._refused(example, f"the score {found:g} is outside {low} … {high}", "whose score is out of range")
    return found


def scores_of(task: Any, source: Source) -> list[float]:
    """The scores of the training data. Raises ValueError where there is none."""
    found = [score_of(task, example, task.low, task.high) for example in source.examples("train", shuffle=False)]
    scores = [score for score in found if not isinstance(score, Skipped)]
    if not scores:
        raise ValueError("no example of the training data has a score; name its column as data.score=…")
    return scores
