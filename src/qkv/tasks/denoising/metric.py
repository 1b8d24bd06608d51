"""Token accuracy of denoising, with samples that the model generates greedily."""

from __future__ import annotations

from typing import Any

import torch

from ...core.batch import IGNORE, Batch
from ...tokenizers.tokenizer import Tokenizer
from ..tokens import TokenMetric

SHOWN = 8  # rows kept to be shown


class DenoisingMetric(TokenMetric):
    """Accuracy of the target's tokens. Samples are generated greedily, from what the encoder reads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.kept: tuple[Any, Batch] | None = None

    def evaluate(self, model: Any, batch: Batch) -> None:
        super().evaluate(model, batch)
        if self.kept is None and not _is_packed(batch):
            self.kept = model, batch

    @torch.inference_mode()
    def samples(self, count: int) -> list[dict[str, Any]]:
        if self.kept is None or not count:
            return []
        model, batch = self.kept
        assert batch.labels is not None
        n = min(count, batch.rows, SHOWN)
        layout = batch.inputs["layout"]
        sources = [ids[real].tolist() for ids, real in zip(batch.inputs["ids"], _rows(layout.valid, n), strict=False)]
        targets = [row[row != IGNORE].tolist() for row in batch.labels[:n]]
        made = model.generate(
            sources,
            bos_id=int(batch.inputs["target"][0, 0]),
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id,
            max_new_tokens=max(map(len, targets)),
        )
        outputs = [row[1:].tolist() for row in made]
        texts = [self._texts(some) for some in (sources, outputs, targets)]
        return [dict(zip(("source", "output", "target"), row, strict=True)) for row in zip(*texts, strict=True)]

    def _texts(self, rows: list[list[int]]) -> list[str]:
        """With masks and sentinels, without what begins, ends and pads."""
        own = self.tokenizer
        drop = {own.pad_id, own.bos_id, own.eos_id, own.cls_id, own.sep_id}
        return own.decode_batch([[i for i in row if i not in drop] for row in rows], skip_special=False)


def _rows(valid: torch.Tensor, n: int) -> torch.Tensor:
    """A layout may have one row for all."""
    return valid[:n] if len(valid) > 1 else valid.expand(n, -1)


def _is_packed(batch: Batch) -> bool:
    return not batch.inputs["layout"].one_segment
