"""Objectives of sentence vectors: cosine regression (Sentence-BERT) and the contrastive loss (InfoNCE, SimCSE)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.batch import Batch, Term, Terms
from ...training.objective import Objective


class Cosine(Objective, kind="cosine"):
    """(cos(u, v) − y)², with y from 0 to 1 how alike the texts of u and v are (Reimers & Gurevych 2019, §3)."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("the objective 'cosine' learns from scores, and these pairs have none; use contrastive")
        u, v = _pairs(model, batch, self.kind)
        error = ((u * v).sum(-1) - batch.labels).square().sum()
        return {"loss": Term(error, len(batch.labels))}


class Contrastive(Objective, kind="contrastive"):
    """−log exp(cos(u_i, v_i)/τ) / Σ_j exp(cos(u_i, v_j)/τ): a text is to tell the one that belongs to it from all others of
    the batch (Henderson et al. 2017; Gao et al. 2021). `both` adds the same for each v among all u, and halves the sum.

    What a pair is told from are the pairs of its own micro-batch on its own rank, which is the term's `scope`: to
    accumulate micro-batches is not the same as a larger batch, though each pair weighs as much. The value is in nats a pair;
    chance is log of the pairs in a batch.
    """

    scope: ClassVar[str] = "micro-batch"

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    both: bool = False

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        u, v = _pairs(model, batch, self.kind)
        likeness = u @ v.T / self.temperature
        own = torch.arange(len(u), device=u.device)
        loss = F.cross_entropy(likeness, own, reduction="sum")
        if self.both:
            loss = (loss + F.cross_entropy(likeness.T, own, reduction="sum")) / 2
        return {"loss": Term(loss, len(u))}


def _pairs(model: nn.Module, batch: Batch, kind: str) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M"]]:
    """Both vectors of each pair, of length 1 in fp32. The targets' `rows` (B, 2) say which rows they are."""
    rows = batch.targets.get("rows")
    if rows is None or rows.shape[1] != 2:
        raise ValueError(f"the objective {kind!r} needs pairs of texts; give the task similarity")
    vectors = model(**batch.inputs)
    if vectors.ndim != 2:
        raise ValueError(
            f"the objective {kind!r} needs a vector for each text, and the model gives {tuple(vectors.shape)}; give it the "
            "head sentence-vector"
        )
    u, v = (F.normalize(vectors.float()[rows[:, side]], dim=-1) for side in (0, 1))
    return u, v
