"""Objectives of span corruption (T5) and denoising (BART): cross-entropy of the missing spans or of the whole text."""

from __future__ import annotations

from torch import nn

from ....core.batch import Batch, Terms
from ....training.objective import LabelObjective


class _TargetObjective(LabelObjective):
    """Cross-entropy of the decoder's tokens."""

    predicts_next = True

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if "target" not in batch.inputs:
            raise ValueError(
                f"the objective {self.kind!r} needs batches with a target, which task={self.kind} makes of running text"
            )
        return super().__call__(model, batch)


class SpanCorruptionObjective(_TargetObjective, kind="span-corruption"):
    """Cross-entropy of the spans that sentinels replace (T5; Raffel et al. 2020, §3.1.4)."""


class DenoisingObjective(_TargetObjective, kind="denoising"):
    """Cross-entropy of the original text (BART; Lewis et al. 2020, §2.2)."""
