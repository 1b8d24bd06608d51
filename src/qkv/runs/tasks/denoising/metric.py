"""Token accuracy of denoising, with samples that the model generates greedily."""

from __future__ import annotations

from typing import Any

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel
from ..tokens import GeneratedTextMetric


class DenoisingMetric(GeneratedTextMetric):
    """Accuracy of the target's tokens. Samples are generated from what the encoder reads."""

    def can_show(self, batch: Batch) -> bool:
        return bool(batch.inputs["layout"].one_segment)  # not packed

    def generate(self, model: MeasuredModel, batch: Batch, count: int) -> list[dict[str, Any]]:
        assert batch.labels is not None
        ids = batch.inputs["ids"]
        valid = batch.inputs["layout"].valid.expand(ids.shape)
        sources = [ids[row][valid[row]].tolist() for row in range(count)]
        targets = [row[row != IGNORE].tolist() for row in batch.labels[:count]]
        outputs = model.generate(
            sources,
            bos_id=int(batch.inputs["target"][0, 0]),
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id,
            max_new_tokens=max(map(len, targets)),
        )
        texts = map(self._texts, (sources, [row[1:].tolist() for row in outputs], targets))
        return [dict(zip(("source", "output", "target"), row, strict=True)) for row in zip(*texts, strict=True)]

    def _texts(self, rows: list[list[int]]) -> list[str]:
        """Decode rows with masks and sentinels, without the tokens that begin, end and pad."""
        own = self.tokenizer
        drop = {own.pad_id, own.bos_id, own.eos_id, own.cls_id, own.sep_id}
        texts: list[str] = own.decode_batch([[i for i in row if i not in drop] for row in rows], skip_special=False)
        return texts
