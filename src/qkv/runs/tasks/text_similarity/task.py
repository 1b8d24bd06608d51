"""The task `similarity`: text similarity by the cosine of two vectors (Sentence-BERT), and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ....core.metrics.base import Metric
from ....core.metrics.baselines import Baseline, word_cosines, word_retrieval
from ....core.metrics.correlation import correlations
from ....data.source import SPLITS, Example, Skipped, Source
from ....data.task import Item, Labels, RandomContext
from ....data.tokenizers.protocol import Encoder
from ....nn.layers.embedding import Input
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import predict_examples, split_tabs
from ..samples import learned
from ..text_regression.task import score_of, scores_of
from ..whole_texts import Sentences, number
from .metric import SimilarityMetric, cosines


class Similarity(Sentences, kind="similarity"):
    """Both texts of a pair are rows of one batch. The head is a `sentence-vector`; the objective is `cosine`, which needs
    scores, or `contrastive`, which needs positive pairs.

    low, high: the scores of unrelated and of equivalent texts; by default the least and the greatest of the training data.
               Pairs in data without scores are all positive.
    positive:  train on pairs with at least this score, as positive pairs. Validation and test use all pairs.

    A text without a second one is paired with itself: by dropout it has two vectors (Gao et al. 2021, SimCSE).
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "head": {"kind": "sentence-vector", "pool": "mean"},
        "objective": {"kind": "cosine"},
        "training": {"metric": "spearman", "mode": "max"},
    }

    low: float | None = None
    high: float | None = None
    positive: float | None = None

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        first = next(source.examples("train", shuffle=False), {})
        if "score" not in first:
            if self.positive is not None:
                raise ValueError("task.positive chooses pairs by their score, and these data have none; leave it out")
            return self._filled(inputs)
        scores = scores_of(self, source)
        task = self._filled(inputs, low=min(scores), high=max(scores))
        if task.low == task.high:
            raise ValueError(f"every pair of the training data has the score {task.low:g}; there is nothing to learn")
        return task

    def check_labels(self, source: Source) -> list[str]:
        for split in SPLITS[1:]:
            for example in source.examples(split, shuffle=False):
                if "score" in example:
                    score_of(self, example, self.low, self.high)
        return []

    def measured(self, metric: str, source: Source) -> str:
        """Retrieval (`mrr`) in place of the correlation, for pairs without scores."""
        scored = "score" in next(source.examples("validation", shuffle=False), {"score": None})
        return metric if scored or metric != self.recipe_defaults["training"]["metric"] else "mrr"

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        return [(example["text"],), (example["pair"] if "pair" in example else example["text"],)]

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        if "score" not in example:
            return None
        score = score_of(self, example, self.low, self.high)
        if isinstance(score, Skipped):
            return score
        low, high = self.low or 0.0, 1.0 if self.high is None else self.high
        return np.float32((score - low) / (high - low))

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        items = super().items(examples, tokenizer, randomness)
        if self.positive is None or not randomness.training:
            return items
        return [
            item
            if isinstance(item, Skipped) or float(example["score"]) >= self.positive
            else Skipped("too unlike to belong together")
            for item, example in zip(items, examples, strict=True)
        ]

    def repeats(self, tokenizer: Encoder | None) -> bool:
        return self.positive is None and super().repeats(tokenizer)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """The cosine of counted words; of pairs without scores, the retrieval of each second text by it."""
        pairs = [one for one in examples if "pair" in one]
        known = [one for one in pairs if number(one.get("score")) is not None]
        pairs = known or [one for one in pairs if "score" not in one]
        if not pairs:
            return []
        training = [text for one in learned(source) for text in (one["text"], one.get("pair")) if text]
        sides = [one["text"] for one in pairs], [one["pair"] for one in pairs]
        if known:
            predicted, truth = word_cosines(training, *sides).tolist(), [float(one["score"]) for one in known]
            metrics = {name: one.value for name, one in correlations(truth, predicted).items()}
        else:
            metrics = word_retrieval(training, *sides)
        return [Baseline("cosine of words", metrics, "TF-IDF, nothing learned")]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SimilarityMetric()


@Similarity.predicts
def predict(task: Similarity, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """Predict the cosine of the two vectors of each line TEXT<tab>TEXT. Long texts are truncated."""
    pairs = [split_tabs(line, ("TEXT", "TEXT"), f"text {i}") for i, line in enumerate(lines, 1)]
    examples = [{"text": a, "pair": b} for a, b in pairs]
    scores = predict_examples(trained, task.replace(over_long="cut"), examples, lambda *one: cosines(*one).tolist())
    return list(map(Prediction.of_number, lines, scores))
