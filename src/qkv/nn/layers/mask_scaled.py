"""Token embeddings in which masked tokens are 0 and the others are scaled for their number (ESM-2's token dropout)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from ...core.layout import Layout
from .embedding import Embedding, TokenEmbedding

TRAINED = 0.15 * 0.8
"""The share of tokens that was masked in training: 80 % of 15 %."""


class MaskScaledEmbedding(Embedding, kind="mask-scaled"):
    """`Embedding` whose vectors are 0 for the token `mask_id`, and (1 − 0.12) / (1 − m) times the table's row for the others
    (Rives et al. 2021, ESM).

    m is the share of masked tokens among the real tokens of the row or packed document. As dropout does, the factor keeps
    the expected sum of a sequence's vectors at what it was in training, in which 12 % of the tokens were masked.
    """

    mask_id: int = Field(ge=0)

    def module(self, vocab_size: int, d_model: int) -> TokenEmbedding:
        if self.mask_id >= vocab_size:
            raise ValueError(f"mask_id={self.mask_id} is outside the vocabulary of {vocab_size} tokens")
        return MaskScaledTokens(self, vocab_size, d_model)


class MaskScaledTokens(TokenEmbedding):
    """The module of `MaskScaledEmbedding`."""

    takes_layout = True

    def __init__(self, spec: MaskScaledEmbedding, vocab_size: int, d_model: int) -> None:
        super().__init__(spec, vocab_size, d_model)
        self.mask_id = spec.mask_id

    def forward(  # type: ignore[override]
        self,
        ids: Int[Tensor, "B T"],
        position: Float[Tensor, "B T W"] | None,
        token_types: Int[Tensor, "B T"] | None = None,
        *,
        layout: Layout,
    ) -> Float[Tensor, "B T M"]:
        x = self.scaled(ids)
        if ids.is_floating_point():  # vectors, among which none is known to be masked
            return self.finished(x, position, token_types)
        masked = ids == self.mask_id
        factor = (1 - TRAINED) / (1 - _share(masked, layout)).clamp(min=1e-6)  # all masked: 0 times anything
        x = (x * factor[..., None].to(x.dtype)).masked_fill(masked[..., None], 0.0)
        return self.finished(x, position, token_types)


def _share(masked: Tensor, layout: Layout) -> Float[Tensor, "B T"]:
    """The share of masked tokens in the row or document of each token."""
    valid = layout.valid.expand(masked.shape)
    counts = torch.stack([masked & valid, valid]).float()
    if layout.one_segment or layout.segments is None:
        sums = counts.sum(-1, keepdim=True)
    else:
        segment = layout.segments.expand(masked.shape)
        segment = segment - segment.min()
        totals = counts.new_zeros(2, len(masked), int(segment.max()) + 1)
        totals.scatter_add_(-1, segment.expand(2, -1, -1), counts)
        sums = totals.gather(-1, segment.expand(2, -1, -1))
    return (sums[0] / sums[1].clamp(min=1)).expand(masked.shape)
