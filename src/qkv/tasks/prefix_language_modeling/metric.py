"""Token accuracy behind the prefix, with samples that the model generates greedily."""

from __future__ import annotations

from typing import Any

import torch

from ...core.batch import IGNORE, Batch
from ...core.layout import Layout, Role
from ...tokenizers.tokenizer import Tokenizer
from ..tokens import TokenMetric

SHOWN = 8  # rows kept to be shown


class PrefixMetric(TokenMetric):
    """Accuracy of the tokens behind the prefix. Samples are greedy; the prefix is read from both sides, as in training."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.kept: tuple[Any, Batch] | None = None

    def evaluate(self, model: Any, batch: Batch) -> None:
        super().evaluate(model, batch)
        self.kept = self.kept or (model, batch)

    @torch.inference_mode()
    def samples(self, count: int) -> list[dict[str, Any]]:
        if self.kept is None:
            return []
        model, batch = self.kept
        rows = range(min(count, batch.rows, SHOWN))
        return [self._sample(model, batch, row) for row in rows]

    def _sample(self, model: Any, batch: Batch, row: int) -> dict[str, Any]:
        assert batch.labels is not None
        size = int((batch.inputs["layout"].roles[row] & Role.PREFIX).ne(0).sum())
        ids = batch.inputs["ids"][row : row + 1, :size]
        layout = Layout.full(size, device=ids.device).with_roles(torch.full_like(ids, Role.PREFIX))
        target = batch.labels[row][batch.labels[row] != IGNORE].tolist()
        made = model.generate(ids, layout=layout, eos_id=self.tokenizer.eos_id, max_new_tokens=len(target))
        said = made[0, size:].tolist()
        texts = (self.tokenizer.decode(some) for some in (ids[0].tolist(), said, target))
        return dict(zip(("source", "output", "target"), texts, strict=True))
