"""Precision and recall of replaced-token detection (ELECTRA), and the accuracy of its generator."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...core.batch import IGNORE, Batch
from ...metrics.base import MetricValue
from ...metrics.display import register
from ...tokenizers.protocol import Encoder
from ..tokens import TokenMetric

register("masked_accuracy", scale="fraction", higher_is_better=True)
register("precision", scale="fraction", higher_is_better=True)
register("recall", scale="fraction", higher_is_better=True)
register("replaced", "Replaced tokens", "fraction", part=True)

SHOWN = 8  # rows kept to be shown


class ReplacedTokenMetric(TokenMetric):
    """Precision and recall of the tokens that are called replaced (log-odds above 0), and how good the generator is."""

    accuracy = "masked_accuracy"

    def __init__(self, tokenizer: Encoder | None) -> None:
        super().__init__()
        self.tokenizer: Any = tokenizer
        self.called = self.found_out = self.replaced = self.tokens = 0
        self.shown: list[dict[str, Any]] = []

    def evaluate(self, model: Any, batch: Batch) -> None:
        generator = model.head.generator
        self.take(generator, generator.hidden(**batch.inputs), batch)
        made = model.head.replace(batch.inputs, batch.labels)
        real = batch.inputs["layout"].valid.expand(made.ids.shape)
        said = model(**{**batch.inputs, "ids": made.ids})[..., 0]
        self.check_nan(said[real])
        called = (said > 0) & real
        self.called += int(called.sum())
        self.replaced += int(made.replaced.sum())
        self.found_out += int((called & made.replaced).sum())
        self.tokens += int(real.sum())
        self._keep(batch, made.ids, called, made.replaced, real)

    def compute(self) -> dict[str, MetricValue]:
        share = MetricValue(self.replaced / max(self.tokens, 1), "share of the tokens that the generator replaced")
        precision = MetricValue(self.found_out / max(self.called, 1), "of the tokens called replaced, those that are")
        recall = MetricValue(self.found_out / max(self.replaced, 1), "of the replaced tokens, those called so")
        return super().compute() | {"replaced": share, "precision": precision, "recall": recall}

    def _keep(self, batch: Batch, ids: Tensor, called: Tensor, replaced: Tensor, real: Tensor) -> None:
        """Some rows with the replaced tokens in ⟦brackets⟧, and with those that the model calls so."""
        assert batch.labels is not None
        whole = batch.inputs["ids"].where(batch.labels == IGNORE, batch.labels)
        for row in range(min(len(ids), SHOWN - len(self.shown))):
            some = real[row]
            read = ids[row][some].tolist()
            texts = [self.tokenizer.decode(whole[row][some].tolist())]
            texts += [self._marked(read, flags[row][some].tolist()) for flags in (called, replaced)]
            self.shown.append(dict(zip(("source", "output", "target"), texts, strict=True)))

    def _marked(self, ids: list[int], flags: list[bool]) -> str:
        tokens = self.tokenizer.tokens(ids)
        return " ".join(f"⟦{token}⟧" if flag else token for token, flag in zip(tokens, flags, strict=True))

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self.shown[:count]
