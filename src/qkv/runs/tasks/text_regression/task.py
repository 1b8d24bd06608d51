"""The task `regress`: text regression, a number for one text or two texts read together, and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ....core.metrics.base import Metric
from ....core.metrics.baselines import Baseline, ridge
from ....core.metrics.correlation import correlations
from ....core.spec import brief
from ....data.files.number_tables import spelling, what_not
from ....data.source import SPLITS, Example, Skipped, Source
from ....data.task import Item, Labels
from ....data.tokenizers.protocol import Encoder
from ....nn.layers.embedding import Input
from ..prediction import Prediction, TrainedModel, parts_of
from ..prediction_batches import predict_examples, split_tabs
from ..samples import learned, learned_from, read_of
from ..whole_texts import Sentences, number
from .metric import NumberMetric


class Regress(Sentences, kind="regress"):
    """The head is a `sequence-classifier` with one label, and learns (score − center) / spread by its squared error.

    low, high:      bounds of the scores, if there are any.
    center, spread: by default mean and standard deviation of the training scores.
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "head": {"kind": "sequence-classifier"},
        "objective": {"kind": "labels"},
        "training": {"metric": "spearman", "mode": "max"},
    }

    from_data: ClassVar[tuple[str, ...]] = ("center", "spread")

    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        scores = scores_of(self, source)
        return self._filled(inputs, center=float(np.mean(scores)), spread=float(np.std(scores)) or 1.0)

    def check_labels(self, source: Source) -> list[str]:
        for split in SPLITS[1:]:
            for example in source.examples(split, shuffle=False):
                score_of(self, example, self.low, self.high)
        return []

    @property
    def n_labels(self) -> int | None:
        return 1

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        score = score_of(self, example, self.low, self.high)
        return score if isinstance(score, Skipped) else np.float32((score - (self.center or 0)) / (self.spread or 1))

    def score(self, output: float) -> float:
        """Convert the head's output to a score."""
        return output * (self.spread or 1) + (self.center or 0)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """Ridge regression on the words of the texts; the mean of the scores has a correlation of 0."""
        training = [one for one in learned(source) if number(one.get("score")) is not None]
        known = [one for one in examples if number(one.get("score")) is not None]
        if not training or not known:
            return []
        numbers = [float(one["score"]) for one in training]
        predicted = ridge(list(map(read_of, training)), numbers, list(map(read_of, known))).tolist()
        values = correlations([float(one["score"]) for one in known], predicted)
        metrics = {name: one.value for name, one in values.items()}
        return [Baseline("ridge regression", metrics, f"on words (TF-IDF), {learned_from(training)}")]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return NumberMetric(self.score)

    def label_text(self, label: float) -> str:
        return f"{self.score(label):.4g}"


@Regress.predicts
def predict(task: Regress, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """Predict the score of each line TEXT or TEXT<tab>TEXT, in the units of the training data."""
    examples: list[Example] = []
    for i, line in enumerate(lines, 1):
        texts = split_tabs(line, ("TEXT", "TEXT") if len(parts_of(line)) > 1 else ("TEXT",), f"text {i}")
        examples.append({**dict(zip(("text", "pair"), texts, strict=False)), "where": f"text {i}"})
    scores = predict_examples(trained, task, examples, lambda outputs, _: map(task.score, outputs.flatten().tolist()))
    return list(map(Prediction.of_number, lines, scores))


def score_of(task: Sentences, example: Example, low: float | None, high: float | None) -> float | Skipped:
    """Return the score of an example, or why it is skipped."""
    if isinstance(missing := example.get("score"), Skipped):
        return missing
    score = number(example.get("score"))
    if score is None:
        problem = "there is no score; name its column as data.score=…"
        if "score" in example:
            score = example["score"]
            problem = f"the score is {brief(score)}, which is no {what_not(score)}{_advice(score)}"
        return task._refused(example, problem, "whose score is no number")
    if (low is not None and score < low) or (high is not None and score > high):
        return task._refused(example, f"the score {score:g} is outside {low} … {high}", "whose score is out of range")
    return score


def _advice(score: Any) -> str:
    how = spelling(score.strip()) if isinstance(score, str) else None
    if how == "a decimal comma":
        return "; data.decimal=',' reads decimal commas"
    return f"; write it without {how}" if how else "; correct it"


def scores_of(task: Any, source: Source) -> list[float]:
    """Return the scores of the training data. Raises ValueError if there are none."""
    parsed = [score_of(task, example, task.low, task.high) for example in source.examples("train", shuffle=False)]
    scores = [score for score in parsed if not isinstance(score, Skipped)]
    if not scores:
        raise ValueError("no example of the training data has a score; name its column as data.score=…")
    return scores
