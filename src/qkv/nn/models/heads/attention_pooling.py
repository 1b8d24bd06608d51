"""`AttentionPooling`: one vector for a sequence, by a learned query that attends to all states (MAP)."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ....core.layout import Layout
from ....core.spec import Cost
from ...attention.attend import attend
from ...layers.feedforward import Activation, FeedForward
from ...layers.linear import Linear
from ...layers.norm import LayerNorm
from .base import Head, HeadModule


class AttentionPooling(Head, kind="attention-pooling"):
    """p + f(norm(p)), with p = Attention(query, states, states) of one learned query and a feed-forward layer f: the
    multi-head attention pooling (MAP) of Set Transformers (Lee et al. 2019, §3.2) as in SigLIP (Zhai et al. 2022, appendix).

    The result has the width of the states. It has no loss: train it by an objective that compares vectors.
    """

    labels_sequences: ClassVar[bool] = True

    n_heads: int = Field(default=12, gt=0)
    d_ff: int = Field(default=3072, gt=0)
    activation: Activation = "gelu-tanh"
    norm: LayerNorm = LayerNorm()

    def module(self, d_model: int, vocab_size: int = 0) -> AttentionPoolingHead:
        return AttentionPoolingHead(self, d_model)

    def vector(self, d_model: int) -> int:
        return d_model

    def cost(self, d_model: int, vocab_size: int = 0, tokens: int = 0) -> Cost:
        own = d_model + 4 * (d_model + 1) * d_model
        flops = 2 * d_model * d_model * (2 * tokens + 2 * bool(tokens)) + 4 * d_model * tokens
        rest = FeedForward(d_ff=self.d_ff).cost(d_model, int(bool(tokens)))
        return Cost(own, flops) + rest + self.norm.cost(d_model, int(bool(tokens)))


class AttentionPoolingHead(HeadModule):
    """The module of `AttentionPooling`."""

    takes_layout = True

    def __init__(self, spec: AttentionPooling, d_model: int) -> None:
        super().__init__()
        if d_model % spec.n_heads:
            raise ValueError(f"head.n_heads={spec.n_heads} does not divide the width of the states, {d_model}")
        self.n_heads = spec.n_heads
        self.query = nn.Parameter(torch.empty(1, d_model))
        self.q, self.k, self.v, self.out = (Linear(d_model, d_model) for _ in range(4))
        self.norm = spec.norm.module(d_model)
        self.feedforward = FeedForward(d_ff=spec.d_ff, activation=spec.activation).module(d_model)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B M"]:
        split = (self.n_heads, -1)
        query = self.q(self.query.to(hidden.dtype)).expand(len(hidden), 1, -1)
        keys, values = self.k(hidden).unflatten(-1, split), self.v(hidden).unflatten(-1, split)
        one = Layout.full(1, device=hidden.device)
        attended = attend(query.unflatten(-1, split), keys, values, layout=one, kv_layout=layout, name="head")
        pooled = self.out(attended.flatten(-2)).squeeze(1)
        return pooled + self.feedforward(self.norm(pooled))
