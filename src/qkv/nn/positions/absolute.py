"""Absolute positional encodings, added to the input: none, sinusoidal, and learned position embeddings."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ...core.layout import Layout
from .base import Position, PositionModule, Widths


class NoPosition(Position, kind="none"):
    """No positional encoding: attention is permutation equivariant (a causal decoder still learns some order)."""


class Sinusoidal(Position, kind="sinusoidal"):
    """PE(p, 2i) = sin(p · base^(−2i/d)), PE(p, 2i+1) = cos(p · base^(−2i/d)) (Vaswani et al. 2017, §3.5).

    `arrangement` "interleaved" alternates sines and cosines as the paper writes it, "concatenated" puts all sines first
    (tensor2tensor, Marian). With `rates` "tensor2tensor" the exponent is −i/(d/2 − 1) instead of −2i/d, as in the paper's
    code, so the slowest wave is exactly `base` times the fastest. `offset` is added to every position.
    """

    base: float = Field(default=10000.0, gt=1)
    rates: Literal["paper", "tensor2tensor"] = "paper"
    arrangement: Literal["interleaved", "concatenated"] = "interleaved"
    offset: int = 0

    def module(self, widths: Widths) -> PositionModule:
        if widths.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {widths.d_model}")
        return SinusoidalEmbedding(self, widths.d_model)

    def encode(self, positions: Tensor, d_model: int) -> Tensor:
        """Encode positions (…) as vectors (…, d_model) in fp32."""
        steps = d_model / 2 if self.rates == "paper" else max(d_model / 2 - 1, 1)
        rate = torch.exp(torch.arange(0, d_model // 2, device=positions.device) * (-math.log(self.base) / steps))
        angle = (positions + self.offset).float()[..., None] * rate
        if self.arrangement == "concatenated":
            return torch.cat([angle.sin(), angle.cos()], -1)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class SinusoidalEmbedding(PositionModule):
    """The module of `Sinusoidal`."""

    def __init__(self, spec: Sinusoidal, d_model: int) -> None:
        super().__init__()
        self.spec, self.d_model = spec, d_model

    def embed(self, layout: Layout) -> Tensor:
        return self.spec.encode(layout.positions[..., 0].clamp(min=0), self.d_model)


class Learned(Position, kind="learned"):
    """One trained vector for each position up to the stack's max_positions (Gehring et al. 2017; BERT, GPT-2).

    `offset` rows precede position 0 (BART and RoBERTa have two).
    """

    offset: int = Field(default=0, ge=0)

    def module(self, widths: Widths) -> PositionModule:
        if widths.max_positions is None:
            raise ValueError("learned positions need max_positions, the most tokens of an input")
        return LearnedEmbedding(self, widths.d_model, widths.max_positions)

    def n_parameters(self, widths: Widths) -> int:
        return ((widths.max_positions or 0) + self.offset) * widths.d_model


class LearnedEmbedding(PositionModule):
    """The module of `Learned`; `weight` is (offset + max_positions, d_model)."""

    def __init__(self, spec: Learned, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.offset, self.max_positions = spec.offset, max_positions
        self.weight = nn.Parameter(torch.empty(max_positions + spec.offset, d_model))

    def embed(self, layout: Layout) -> Tensor:
        return nn.functional.embedding(layout.positions[..., 0].clamp(min=0) + self.offset, self.weight)
