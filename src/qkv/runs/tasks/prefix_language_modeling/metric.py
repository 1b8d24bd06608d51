"""Token accuracy of prefix language modeling, with samples that the model generates greedily."""

from __future__ import annotations

from typing import Any

import torch

from ....core.batch import IGNORE, Batch
from ....core.layout import Layout, Role
from ....core.metrics.base import MeasuredModel
from ..tokens import GeneratedTextMetric


class PrefixMetric(GeneratedTextMetric):
    """Accuracy of the tokens after the prefix. Samples continue prefixes, which attend to themselves as in training."""

    def generate(self, model: MeasuredModel, batch: Batch, count: int) -> list[dict[str, Any]]:
        return [self._sample(model, batch, row) for row in range(count)]

    def _sample(self, model: MeasuredModel, batch: Batch, row: int) -> dict[str, Any]:
        assert batch.labels is not None
        size = int((batch.inputs["layout"].roles[row] & Role.PREFIX).ne(0).sum())
        ids = batch.inputs["ids"][row : row + 1, :size]
        layout = Layout.full(size, device=ids.device).with_roles(torch.full_like(ids, Role.PREFIX))
        target = batch.labels[row][batch.labels[row] != IGNORE].tolist()
        output = model.generate(ids, layout=layout, eos_id=self.tokenizer.eos_id, max_new_tokens=len(target))
        texts = map(self.tokenizer.decode, (ids[0].tolist(), output[0, size:].tolist(), target))
        return dict(zip(("source", "output", "target"), texts, strict=True))
