"""Objectives of sentence vectors: cosine regression (Sentence-BERT) and the contrastive loss (InfoNCE, SimCSE)."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.batch import Batch, Term, Terms
from ....core.spec import brief
from ....nn.layers.losses import at_least_fp32
from ....training.objective import Objective
from ....training.pairs import PairObjective, PairVectors, pair_numbers


class CosineObjective(Objective, kind="cosine"):
    """(cos(u, v) − y)², where y from 0 to 1 is the similarity of the texts (Reimers & Gurevych 2019, §3)."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("the objective 'cosine' learns from scores, and these pairs have none; use contrastive")
        u, v = _pairs(model, batch, self.kind)
        error = ((u * v).sum(-1) - batch.labels).square().sum()
        return {"loss": Term(error, len(batch.labels))}


class Contrastive(PairObjective, kind="contrastive"):
    """−log exp(cos(u_i, v_i)/τ) / Σ_j exp(cos(u_i, v_j)/τ): each text identifies its own pair among all pairs of the step
    (InfoNCE; Henderson et al. 2017; Gao et al. 2021). `both` adds the same for each v among all u, and halves the sum.

    Negatives are the pairs of all accumulated batches and all ranks, see `PairObjective`. The value is in nats per pair;
    chance is the logarithm of the number of pairs in a step.
    """

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    both: bool = False

    def vectors(self, model: nn.Module, batch: Batch) -> PairVectors:
        return PairVectors(*_pairs(model, batch, self.kind), {})

    def loss(self, own: PairVectors, u: Float[Tensor, "N M"], v: Float[Tensor, "N M"], start: int) -> Tensor:
        labels = pair_numbers(own, u, start)
        loss = F.cross_entropy(own.u @ v.T / self.temperature, labels, reduction="sum")
        if self.both:
            loss = (loss + F.cross_entropy(own.v @ u.T / self.temperature, labels, reduction="sum")) / 2
        return loss


def _pairs(model: nn.Module, batch: Batch, kind: str) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M"]]:
    """The two vectors of each pair, normalized to length 1 in fp32. The targets' `rows` (B, 2) are their rows."""
    rows = batch.targets.get("rows")
    if rows is None or rows.shape[1] != 2:
        raise ValueError(f"the objective {brief(kind)} needs pairs of texts; give the task similarity")
    vectors = model(**batch.inputs)
    if vectors.ndim != 2:
        raise ValueError(
            f"the objective {brief(kind)} needs a vector for each text, and the model gives {tuple(vectors.shape)}; "
            "give it the head sentence-vector"
        )
    u, v = (F.normalize(at_least_fp32(vectors)[rows[:, side]], dim=-1) for side in (0, 1))
    return u, v
