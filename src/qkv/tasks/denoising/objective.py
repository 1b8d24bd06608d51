"""Objectives of denoising: cross-entropy of the decoder's tokens, of the missing spans (T5) or the whole text (BART)."""

from __future__ import annotations

from torch import nn

from ...core.batch import Batch, Terms
from ...training.objective import LabelObjective


class _OfTargets(LabelObjective):
    """The loss of the decoder's tokens, for batches that an encoder reads."""

    predicts_next = True

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if "target" not in batch.inputs:
            raise ValueError(
                f"the objective {self.kind!r} needs batches with a target, which task={self.kind} makes of running text"
            )
        return super().__call__(model, batch)


class SpanCorruption(_OfTargets, kind="span-corruption"):
    """T5's: the spans that sentinels stand for are said one after the other (Raffel et al. 2020, §3.1.4)."""


class Denoising(_OfTargets, kind="denoising"):
    """BART's: the whole text is said as it was (Lewis et al. 2020, §2.2)."""
