"""Accuracy of masked tokens and of next-sentence prediction."""

from __future__ import annotations

from torch import Tensor

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, MetricValue
from ....core.metrics.display import register
from ....data.tokenizers.protocol import TextDecoder
from ..tokens import SHOWN, TokenMetric

register("masked_accuracy", scale="fraction", higher_is_better=True)
register("sentence_accuracy", scale="fraction", higher_is_better=True)

NEXT = "next_sentence"  # the target of next-sentence prediction, and its term of the loss


class MaskedTokenMetric(TokenMetric):
    """Accuracy of masked tokens, and of next-sentence prediction if the model has a head for it."""

    accuracy = "masked_accuracy"

    def __init__(self, tokenizer: TextDecoder | None) -> None:
        super().__init__(tokenizer)
        self.pairs: list[bool] = []  # whether the class of each pair of sentences was right

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        hidden = model.hidden(**batch.inputs)
        predicted = self.take(model, hidden, batch)
        if NEXT in batch.targets and model.classification_head is not None:
            scores = model.classification_head(hidden, batch.inputs["layout"])
            self.check_nan(scores)
            self.pairs += (scores.argmax(-1) == batch.targets[NEXT]).tolist()
        self._keep(predicted, batch)

    def compute(self) -> dict[str, MetricValue]:
        values = super().compute()
        if self.pairs:
            share = sum(self.pairs) / len(self.pairs)
            values["sentence_accuracy"] = MetricValue(share, "half of the second sentences follow the first")
        return values

    def _keep(self, predicted: Tensor, batch: Batch) -> None:
        """Keep some rows: as the model read them, as it filled them in, and the original."""
        assert batch.labels is not None
        filled = batch.labels.clone()
        filled[batch.labels != IGNORE] = predicted
        valid = batch.inputs["layout"].valid.expand(filled.shape)
        for row in range(min(len(filled), SHOWN - len(self.shown))):
            ids, real = batch.inputs["ids"][row], valid[row]
            changed = (ids.where(labels[row] == IGNORE, labels[row]) for labels in (filled, batch.labels))
            self.show(*(self._text(version[real].tolist()) for version in (ids, *changed)))

    def _text(self, ids: list[int]) -> str:
        """The text with its mask tokens, without other special tokens."""
        drop = {*self.tokenizer.controls.values()} - {self.tokenizer.mask_id, self.tokenizer.unk_id}
        text: str = self.tokenizer.decode([i for i in ids if i not in drop], skip_special=False)
        return text
