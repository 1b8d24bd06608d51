"""A vector for a whole text, on top of whatever stack: what is compared where texts are."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from ...core.layout import Layout
from ...layers.losses import LossSums
from .text import Head, HeadModule, pool


class SentenceVector(Head, kind="sentence-vector"):
    """The `mean` of the hidden states of real tokens, in each dimension their `max`, or the `first` (BERT's [CLS]) or `last`
    of them (Reimers & Gurevych 2019, §3). It has no parameters and no loss of its own: objectives that compare vectors take
    it, `cosine` and `contrastive`.
    """

    pool: Literal["mean", "max", "first", "last"] = "mean"

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return SentenceVectorHead(self)


class SentenceVectorHead(HeadModule):
    """The module of `SentenceVector`."""

    takes_layout = True

    def __init__(self, spec: SentenceVector) -> None:
        super().__init__()
        self.pool = spec.pool

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B M"]:
        return pool(hidden, layout, self.pool)

    def loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        layout: Layout | None = None,
    ) -> LossSums:
        raise ValueError("vectors of texts have no labels; train them by the objective cosine or contrastive")
