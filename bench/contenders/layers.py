"""One feed-forward layer, forward and backward: dense, and a mixture of experts that computes as much for each token."""

from __future__ import annotations

import torch

from qkv.nn.layers.feedforward import FeedForward
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.initialization import Normal, initialize
from qkv.nn.models.unfilled import Unfilled


class Layer:
    """SwiGLU of width d_ff, or `experts` of them half as wide of which each token takes two."""

    def __init__(self, d_model: int, d_ff: int, tokens: int, experts: int, precision: str) -> None:
        dense = FeedForward(d_ff=d_ff, activation="silu", gated=True, bias=False)
        spec = MixtureOfExperts(n_experts=experts, top_k=2, d_ff=d_ff // 2) if experts else dense
        with Unfilled():
            self.layer, self.precision = spec.module(d_model).train(), precision
        initialize(self.layer, Normal(), seed=0, n_layers=1)
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(1, tokens, d_model, generator=generator).requires_grad_()
        self.facts = {"weights": sum(p.numel() for p in self.layer.parameters())}

    def __call__(self) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            self.layer(self.x).float().square().mean().backward()
        self.x.grad = None
        self.layer.zero_grad()
