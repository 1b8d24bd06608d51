"""What stands on top of a stack: the language model's head, and the pooler of bidirectional encoders."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.cross_entropy import LossSums, cross_entropy, linear_cross_entropy
from ..core.layout import Layout
from ..core.linear import Linear
from ..core.spec import Cost, Spec


class Head(Spec, role="head"):
    """What turns hidden states into what a model is trained for."""

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        raise NotImplementedError

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        return Cost()


class HeadModule(nn.Module):
    """What every head's module offers: outputs from hidden states, and the loss sums for labels."""

    def loss(self, hidden: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> LossSums:
        raise NotImplementedError


class LanguageModel(Head, kind="language-model"):
    """logits = h Wᵀ + b over the vocabulary. `tied`: W is the embedding table (Press & Wolf 2017).

    `scale` "rsqrt" multiplies h by 1/√d_model first (T5 with tied tables); `softcap` bounds logits (Gemma 2). `fused`
    computes the loss without holding the logits; the plain way is for comparison.
    """

    tied: bool = True
    bias: bool = False
    scale: Literal["none", "rsqrt"] = "none"
    softcap: float | None = Field(default=None, gt=0)
    fused: bool = True

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return LanguageModelHead(self, d_model, vocab_size)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        own = 0 if self.tied else vocab_size * d_model
        return Cost(own + vocab_size * self.bias, 2 * vocab_size * d_model * tokens)


class LanguageModelHead(HeadModule):
    """The module of `LanguageModel`. `weight` is None until the model ties it, when it is tied."""

    def __init__(self, spec: LanguageModel, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(d_model) if spec.scale == "rsqrt" else 1.0
        self.softcap, self.fused = spec.softcap, spec.fused
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if spec.bias else None

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T V"]:
        logits = F.linear(hidden * self.scale if self.scale != 1.0 else hidden, self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def loss(
        self, hidden: Float[Tensor, "B T M"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0
    ) -> LossSums:
        if not self.fused or self.softcap is not None:
            return cross_entropy(self(hidden), labels, label_smoothing)
        hidden = hidden * self.scale if self.scale != 1.0 else hidden
        return linear_cross_entropy(hidden, self.weight, self.bias, labels, label_smoothing)


class Pooler(Spec, kind="pooler"):
    """One vector for a sequence: the `first` token or the `mean` of real ones, through tanh(Wx + b) where `dense` (BERT)."""

    method: Literal["first", "mean"] = "first"
    dense: bool = True

    def cost(self, d_model: int) -> Cost:
        return Cost(d_model * d_model + d_model if self.dense else 0)


class PoolerModule(nn.Module):
    def __init__(self, spec: Pooler, d_model: int) -> None:
        super().__init__()
        self.method = spec.method
        self.dense = Linear(d_model, d_model) if spec.dense else None

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B M"]:
        pooled = pool(hidden, layout, self.method)
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))


def pool(hidden: Float[Tensor, "B T M"], layout: Layout, method: str) -> Float[Tensor, "B M"]:
    """`mean` over real tokens, or the `first` or `last` real one, wherever padding stands."""
    valid = layout.valid.expand(hidden.shape[:2])
    if method == "mean":
        weight = valid.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
    if method not in ("first", "last"):
        raise ValueError(f"pooling is mean, first or last, not {method!r}")
    index = valid.long().argmax(1) if method == "first" else valid.shape[1] - 1 - valid.flip(1).long().argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), index]
