"""Token accuracy under teacher forcing, beside the entropy of the labels; samples of pre-training tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.batch import IGNORE, Batch
from ...core.metrics.base import MeasuredModel, Metric, MetricValue
from ...core.metrics.display import register
from ...data.tokenizers.protocol import TextDecoder

register("accuracy", scale="fraction", higher_is_better=True)

AT_ONCE = 1024  # positions whose logits are in memory at once
SHOWN = 8  # rows kept as samples


class TokenMetric(Metric):
    """The share of labels that are the model's first choice, and the entropy of the unigram distribution of the labels.

    The entropy −Σ p log p (nats; p: relative frequencies of the tokens among these labels) is the least loss of a model
    that predicts one distribution everywhere: a model with a lower loss has learned from its context.
    """

    accuracy = "accuracy"

    def __init__(self, tokenizer: TextDecoder | None = None) -> None:
        self._tokenizer = tokenizer
        self.shown: list[dict[str, Any]] = []
        self.right = 0
        self.seen = np.zeros(0, np.int64)  # how often each token was a label

    @property
    def tokenizer(self) -> TextDecoder:
        """The tokenizer that decodes samples."""
        assert self._tokenizer is not None, "only a metric with a tokenizer shows texts"
        return self._tokenizer

    @property
    def count(self) -> int:
        return int(self.seen.sum())

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        self.take(model, model.hidden(**batch.inputs), batch)

    def take(self, model: MeasuredModel, hidden: Tensor, batch: Batch) -> Tensor:
        """Count the predictions at the labels and return them, in the labels' order. Computes logits at these alone."""
        assert batch.labels is not None
        counted = batch.labels != IGNORE
        labels, states = batch.labels[counted], hidden[counted]
        self.check_nan(states)
        chunks = [model.head(part[None])[0].argmax(-1) for part in states.split(AT_ONCE)]
        predicted = torch.cat(chunks) if chunks else labels
        self.right += int((predicted == labels).sum())
        tally = np.bincount(labels.cpu().numpy())
        width = max(len(self.seen), len(tally))
        self.seen = np.pad(self.seen, (0, width - len(self.seen))) + np.pad(tally, (0, width - len(tally)))
        return predicted

    def compute(self) -> dict[str, MetricValue]:
        if not self.count:
            return {}
        share = MetricValue(self.right / self.count, "share of the labels that are the model's first choice")
        how = "−Σ p log p over the words of the same labels, in nats"
        return {self.accuracy: share, "unigram_entropy": MetricValue(entropy(self.seen), how)}

    def show(self, source: str, output: str, target: str) -> None:
        """Keep a sample."""
        self.shown.append({"source": source, "output": output, "target": target})

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self.shown[:count]


class GeneratedTextMetric(TokenMetric):
    """Token accuracy, with samples that the model generates greedily for the first batch that can be shown."""

    def __init__(self, tokenizer: TextDecoder | None = None) -> None:
        super().__init__(tokenizer)
        self.kept: tuple[MeasuredModel, Batch] | None = None

    def can_show(self, batch: Batch) -> bool:
        """Whether samples can be generated from a batch."""
        return True

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        super().evaluate(model, batch)
        if self.kept is None and self.can_show(batch):
            self.kept = model, batch

    @torch.inference_mode()
    def samples(self, count: int) -> list[dict[str, Any]]:
        if self.kept is None or not count:
            return []
        model, batch = self.kept
        return self.generate(model, batch, min(count, batch.rows, SHOWN))

    def generate(self, model: MeasuredModel, batch: Batch, count: int) -> list[dict[str, Any]]:
        """Return samples of the first `count` rows of a batch."""
        raise NotImplementedError


def entropy(counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """−Σ p log p of counts, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
