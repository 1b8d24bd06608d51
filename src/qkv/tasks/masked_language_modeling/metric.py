"""Accuracy of masked tokens and of next-sentence prediction."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...core.batch import IGNORE, Batch
from ...metrics.base import MetricValue
from ...metrics.display import register
from ...tokenizers.protocol import Encoder
from ..tokens import TokenMetric

register("masked_accuracy", scale="fraction", higher_is_better=True)
register("sentence_accuracy", scale="fraction", higher_is_better=True)

NEXT = "next_sentence"
SHOWN = 8  # rows kept to be shown


class MaskedTokenMetric(TokenMetric):
    """Accuracy at the hidden places, and of next-sentence prediction where the model has a head for it."""

    accuracy = "masked_accuracy"

    def __init__(self, tokenizer: Encoder | None) -> None:
        super().__init__()
        self.tokenizer: Any = tokenizer
        self.known: list[bool] = []
        self.shown: list[dict[str, Any]] = []

    def evaluate(self, model: Any, batch: Batch) -> None:
        hidden = model.hidden(**batch.inputs)
        said = self.take(model, hidden, batch)
        if NEXT in batch.targets and model.classification_head is not None:
            scores = model.classification_head(hidden, batch.inputs["layout"])
            self.check_nan(scores)
            self.known += (scores.argmax(-1) == batch.targets[NEXT]).tolist()
        self._keep(said, batch)

    def compute(self) -> dict[str, MetricValue]:
        more = {}
        if self.known:
            share = sum(self.known) / len(self.known)
            more["sentence_accuracy"] = MetricValue(share, "half of the second sentences follow the first")
        return super().compute() | more

    def _keep(self, said: Tensor, batch: Batch) -> None:
        """Some rows as they were read, as the model fills them in, and as they were."""
        assert batch.labels is not None
        whole = batch.labels.clone()
        whole[batch.labels != IGNORE] = said
        valid = batch.inputs["layout"].valid.expand(whole.shape)
        for row in range(min(len(whole), SHOWN - len(self.shown))):
            ids, real = batch.inputs["ids"][row], valid[row]
            texts = [
                self._text(ids.where(picked[row] == IGNORE, picked[row])[real].tolist())
                for picked in (batch.labels.new_full(whole.shape, IGNORE), whole, batch.labels)
            ]
            self.shown.append(dict(zip(("source", "output", "target"), texts, strict=True)))

    def _text(self, ids: list[int]) -> str:
        """The text with its masks, without what stands around it."""
        drop = {*self.tokenizer.controls.values()} - {self.tokenizer.mask_id, self.tokenizer.unk_id}
        text: str = self.tokenizer.decode([i for i in ids if i not in drop], skip_special=False)
        return text

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self.shown[:count]
