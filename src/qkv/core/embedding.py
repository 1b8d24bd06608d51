"""Token embeddings: what a stack reads before its first block."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import dropout
from .linear import Linear
from .norm import NoNorm, Norm
from .spec import Cost, Spec


class Embedding(Spec, kind="embedding"):
    """dropout(norm(scale · E[token] + position + type)), projected to d_model where `width` is another.

    `scale` "sqrt" multiplies by √width (Vaswani et al. 2017, §3.4). `token_types` is BERT's sentence A/B table.
    """

    width: int | None = Field(default=None, gt=0)
    scale: Literal["none", "sqrt"] = "none"
    norm: Norm = NoNorm()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    token_types: int = Field(default=0, ge=0)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        """Without the token table itself, which may be shared: its owner counts it."""
        width = self.width or d_model
        projection = width * d_model + d_model if width != d_model else 0
        return Cost(self.token_types * width + projection, 2 * projection * tokens) + self.norm.cost(width, tokens)


class TokenEmbedding(nn.Module):
    """The module of `Embedding`; `weight` (V, width) may be shared with other stacks and with the head."""

    def __init__(self, spec: Embedding, vocab_size: int, d_model: int) -> None:
        super().__init__()
        width = spec.width or d_model
        self.scale = math.sqrt(width) if spec.scale == "sqrt" else 1.0
        self.dropout = spec.dropout
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        self.types = nn.Parameter(torch.empty(spec.token_types, width)) if spec.token_types else None
        self.norm = spec.norm.module(width)
        self.project = Linear(width, d_model) if width != d_model else None

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        position: Float[Tensor, "B T W"] | None,
        token_types: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T M"]:
        x = F.embedding(ids, self.weight)
        if self.scale != 1.0:
            x = x * self.scale
        if position is not None:
            x = x + position.to(x.dtype)
        if self.types is not None:
            x = x + (self.types[0] if token_types is None else F.embedding(token_types, self.types))
        x = dropout(self.norm(x), self.dropout, self.training)
        return x if self.project is None else self.project(x)
