"""The head that predicts tokens, with a matrix of its own or the embedding table (weight tying, Press & Wolf 2017)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from ....core.spec import Cost, Spec
from ...layers.feedforward import ACTIVATIONS, Activation
from ...layers.linear import Linear, product
from ...layers.losses import LossSums, cross_entropy, linear_cross_entropy
from ...layers.norm import LayerNorm, Norm
from ...layers.quantized import dense
from .base import Head, HeadModule

if TYPE_CHECKING:
    from ..stack import StackModule


class Transform(Spec, kind="transform"):
    """norm(f(h W + b)), applied to hidden states before the output layer of masked language models (BERT).

    `width` is the width of the result, d_model by default; narrow embeddings need another (ELECTRA). Without `bias` there
    is no b (ModernBERT).
    """

    activation: Activation = "gelu"
    norm: Norm = LayerNorm()
    width: int | None = Field(default=None, gt=0)
    bias: bool = True

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        width = self.width or d_model
        return Cost(d_model * width + width * self.bias, 2 * d_model * width * tokens) + self.norm.cost(width, tokens)


class TransformModule(nn.Module):
    """The module of `Transform`."""

    def __init__(self, spec: Transform, d_model: int) -> None:
        super().__init__()
        width = spec.width or d_model
        self.dense = Linear(d_model, width, bias=spec.bias)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.module(width)

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T W"]:
        return self.norm(self.activation(self.dense(hidden)))


class LanguageModel(Head, kind="language-model"):
    """logits = h Wᵀ + b over the vocabulary. `tied`: W is the embedding table (Press & Wolf 2017).

    `transform` is applied to h first, as in masked language models. `scale` multiplies h: "rsqrt" by 1/√d_model (T5 with
    tied tables), a number by itself (Granite). `softcap` bounds logits (Gemma 2). `fused` computes the loss without
    materializing the logits; false is for comparison.
    """

    predicts_tokens: ClassVar[bool] = True

    tied: bool = True
    bias: bool = False
    transform: Transform | None = None
    scale: Literal["none", "rsqrt"] | Annotated[float, Field(gt=0)] = "none"
    softcap: float | None = Field(default=None, gt=0)
    fused: bool = True

    def width(self, d_model: int) -> int:
        """The width of the states that the output matrix is applied to."""
        return (self.transform and self.transform.width) or d_model

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return LanguageModelHead(self, d_model, vocab_size)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        table = vocab_size * self.width(d_model)
        total = Cost((0 if self.tied else table) + vocab_size * self.bias, 2 * table * tokens)
        return total if self.transform is None else total + self.transform.cost(d_model, tokens)


class LanguageModelHead(HeadModule):
    """The module of `LanguageModel`. Where it is tied, `weight` is the embedding's."""

    def __init__(self, spec: LanguageModel, d_model: int, vocab_size: int) -> None:
        super().__init__()
        own = 1 / math.sqrt(d_model) if spec.scale == "rsqrt" else 1.0
        self.scale = spec.scale if isinstance(spec.scale, float) else own
        self.softcap, self.fused, self.tied = spec.softcap, spec.fused, spec.tied
        self.transform = None if spec.transform is None else TransformModule(spec.transform, d_model)
        self.weight = nn.Parameter(torch.empty(vocab_size, spec.width(d_model)))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if spec.bias else None

    def tie(self, stack: StackModule) -> None:
        if self.tied:
            self.weight = stack.embedding.weight

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T V"]:
        hidden = hidden if self.transform is None and self.scale == 1.0 else self.transformed(hidden)
        logits = product(hidden, self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, "B T"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> LossSums:
        if not self.fused or self.softcap is not None:
            return cross_entropy(self(hidden), labels, label_smoothing, z_loss)
        states, weight = self.transformed(hidden), dense(self.weight)
        return linear_cross_entropy(states, weight, self.bias, labels, label_smoothing, z_loss)

    def transformed(self, hidden: Tensor) -> Tensor:
        """The states that the output matrix is applied to."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return hidden * self.scale if self.scale != 1.0 else hidden
