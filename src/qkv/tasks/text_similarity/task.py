"""The task `similarity`: how alike two texts are, by the cosine of their vectors (Sentence-BERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ...data.source import Example, Skipped, Source
from ...data.task import Item, RandomContext
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..text_regression.task import score_of, scores_of
from ..whole_texts import Sentences
from .metric import SimilarityMetric


class Similarity(Sentences, kind="similarity"):
    """Both texts of a pair are rows of one batch. The head is a `sentence-vector`; the objective is `cosine`, which wants
    scores, or `contrastive`, which wants pairs that belong together.

    low, high: the scores of what has nothing in common and of what is the same; by default the least and the greatest of
               the training data. Data without scores are pairs that belong together.
    positive:  train on pairs with this score at least, as those that belong together. Validation and test have all.

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
        made = self._filled(inputs, low=min(scores), high=max(scores))
        if made.low == made.high:
            raise ValueError(f"every pair of the training data has the score {made.low:g}; there is nothing to learn")
        return made

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        return [(example["text"],), (example["pair"] if "pair" in example else example["text"],)]

    def labels(self, example: Example, inputs: Item) -> Any | Skipped:
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
        made = super().items(examples, tokenizer, randomness)
        if self.positive is None or not randomness.training:
            return made
        together = (float(example["score"]) >= self.positive for example in examples)
        return [
            item if isinstance(item, Skipped) or fits else Skipped("too unlike to belong together")
            for item, fits in zip(made, together, strict=True)
        ]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SimilarityMetric()
