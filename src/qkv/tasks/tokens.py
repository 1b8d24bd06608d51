"""Token accuracy under teacher forcing, beside the entropy of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.batch import IGNORE, Batch
from ..metrics.base import Metric, MetricValue
from ..metrics.display import register

register("accuracy", scale="fraction", higher_is_better=True)

AT_ONCE = 1024  # places of which logits are held


class TokenMetric(Metric):
    """The share of labels that are the model's first choice, and the entropy of the labels' own frequencies.

    The entropy −Σ p log p (nats; p: shares of the words among these labels) is the least loss that one distribution for all
    places could have: what a model is below it, it owes to what it read.
    """

    accuracy = "accuracy"

    def __init__(self) -> None:
        self.right = 0
        self.seen = np.zeros(0, np.int64)  # how often each word was a label

    @property
    def count(self) -> int:
        return int(self.seen.sum())

    def evaluate(self, model: Any, batch: Batch) -> None:
        self.take(model, model.hidden(**batch.inputs), batch)

    def take(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Count what is said at the places with labels; it is given back, in their order. Logits are made of these alone."""
        assert batch.labels is not None
        counts = batch.labels != IGNORE
        labels, places = batch.labels[counts], hidden[counts]
        self.check_nan(places)
        chunks = [model.head(part[None])[0].argmax(-1) for part in places.split(AT_ONCE)]
        said = torch.cat(chunks) if chunks else labels
        self.right += int((said == labels).sum())
        tally = np.bincount(labels.cpu().numpy())
        wide = max(len(self.seen), len(tally))
        self.seen = np.pad(self.seen, (0, wide - len(self.seen))) + np.pad(tally, (0, wide - len(tally)))
        return said

    def compute(self) -> dict[str, MetricValue]:
        if not self.count:
            return {}
        return {
            self.accuracy: MetricValue(
                self.right / self.count, "share of the labels that are the model's first choice"
            ),
            "unigram_entropy": MetricValue(entropy(self.seen), "−Σ p log p over the words of the same labels, in nats"),
        }


def entropy(counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """−Σ p log p of counts, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
