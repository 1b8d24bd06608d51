"""Precision and recall of replaced-token detection (ELECTRA), and the accuracy of its generator."""

from __future__ import annotations

from torch import Tensor

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, MetricValue
from ....core.metrics.display import register
from ....data.tokenizers.protocol import TextDecoder
from ..tokens import SHOWN, TokenMetric

register("masked_accuracy", scale="fraction", higher_is_better=True)
register("precision", scale="fraction", higher_is_better=True)
register("recall", scale="fraction", higher_is_better=True)
register("replaced", "Replaced tokens", "fraction", part=True)


class ReplacedTokenMetric(TokenMetric):
    """Precision and recall of the tokens classified as replaced (log-odds above 0), and accuracy of the generator."""

    accuracy = "masked_accuracy"

    def __init__(self, tokenizer: TextDecoder | None) -> None:
        super().__init__(tokenizer)
        self.flagged = self.detected = self.replaced = self.tokens = 0

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        generator = model.head.generator
        self.take(generator, generator.hidden(**batch.inputs), batch)
        corrupted = model.head.replace(batch.inputs, batch.labels)
        real = batch.inputs["layout"].valid.expand(corrupted.ids.shape)
        logits = model(**{**batch.inputs, "ids": corrupted.ids})[..., 0]
        self.check_nan(logits[real])
        flagged = (logits > 0) & real
        self.flagged += int(flagged.sum())
        self.replaced += int(corrupted.replaced.sum())
        self.detected += int((flagged & corrupted.replaced).sum())
        self.tokens += int(real.sum())
        self._keep(batch, corrupted.ids, flagged, corrupted.replaced, real)

    def compute(self) -> dict[str, MetricValue]:
        if not self.tokens:
            return {}
        share = MetricValue(self.replaced / self.tokens, "share of the tokens that the generator replaced")
        precision = MetricValue(self.detected / max(self.flagged, 1), "of the tokens called replaced, those that are")
        recall = MetricValue(self.detected / max(self.replaced, 1), "of the replaced tokens, those called so")
        return super().compute() | {"replaced": share, "precision": precision, "recall": recall}

    def _keep(self, batch: Batch, ids: Tensor, flagged: Tensor, replaced: Tensor, real: Tensor) -> None:
        """Keep some rows: the original, and with the tokens in ⟦brackets⟧ that the model calls replaced, and that are."""
        assert batch.labels is not None
        original = batch.inputs["ids"].where(batch.labels == IGNORE, batch.labels)
        for row in range(min(len(ids), SHOWN - len(self.shown))):
            valid = real[row]
            tokens = self.tokenizer.tokens(ids[row][valid].tolist())
            marked = (_marked(tokens, flags[row][valid].tolist()) for flags in (flagged, replaced))
            self.show(self.tokenizer.decode(original[row][valid].tolist()), *marked)


def _marked(tokens: list[str], flags: list[bool]) -> str:
    return " ".join(f"⟦{token}⟧" if flag else token for token, flag in zip(tokens, flags, strict=True))
