"""Position-wise feed-forward layers: plain, gated (SwiGLU, GEGLU, ReGLU), or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.spec import Cost, Spec
from ..kernels.gelu import gelu, gelu_tanh
from .dropout import dropout
from .linear import together
from .low_rank import FeedForwardRanks, linear, matrix_size

Activation = Literal["relu", "gelu", "gelu-tanh", "gelu-quick", "silu", "sigmoid", "relu-squared", "identity"]


def gelu_quick(x: Tensor) -> Tensor:
    """x · σ(1.702 x) (Hendrycks & Gimpel 2016)."""
    return x * torch.sigmoid(1.702 * x)


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)² (So et al. 2021)."""
    return F.relu(x).square()


def identity(x: Tensor) -> Tensor:
    return x


# Named functions, so models can be pickled.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "gelu-quick": gelu_quick,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu-squared": relu_squared,
    "identity": identity,
}


class FeedForwardLayer(Spec, role="feedforward"):
    """Base class of feed-forward layers: any map (B, T, M) → (B, T, M) that treats positions alike.

    Its module is called as `module(x)`, or if it has the attribute `takes_pass = True`, as `module(x, run)`: the layout of
    the `Pass` tells padding from tokens, and its `extras` collect the layer's extra losses and statistics (`core.extras`).
    """

    def module(self, d_model: int) -> nn.Module:
        raise NotImplementedError

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        return Cost()


class NoFeedForward(FeedForwardLayer, kind="none"):
    """No feed-forward layer: attention alone."""

    def module(self, d_model: int) -> nn.Module:
        return nn.Identity()


class FeedForward(FeedForwardLayer, kind="feedforward"):
    """f(x W_up + b) W_down + b (Vaswani et al. 2017, §3.3); gated: (f(x W_gate) ⊙ x W_up) W_down (Shazeer 2020).

    SwiGLU, GEGLU and ReGLU are `gated` with silu, gelu and relu; relu-squared is Primer's (So et al. 2021). gelu-tanh and
    gelu-quick approximate gelu by tanh and by a sigmoid (Hendrycks & Gimpel 2016). `dropout` is applied to the hidden
    activations. `low_rank` gives matrices the rank of their factors, W = U V (`layers.low_rank`).
    """

    d_ff: int = Field(gt=0)
    activation: Activation = "relu"
    gated: bool = False
    bias: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    low_rank: FeedForwardRanks = FeedForwardRanks()

    def module(self, d_model: int) -> nn.Module:
        return FeedForwardNet(self, d_model)

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        matrices = 3 if self.gated else 2
        biases = ((matrices - 1) * self.d_ff + d_model) if self.bias else 0
        ranks = self.low_rank
        weights = matrix_size(d_model, self.d_ff, ranks.up) + matrix_size(self.d_ff, d_model, ranks.down)
        weights += matrix_size(d_model, self.d_ff, ranks.gate) if self.gated else 0
        return Cost(weights + biases, 2 * weights * tokens)


class FeedForwardNet(nn.Module):
    """The module of `FeedForward`."""

    def __init__(self, spec: FeedForward, d_model: int) -> None:
        super().__init__()
        self.activation, self.dropout = ACTIVATIONS[spec.activation], spec.dropout
        ranks = spec.low_rank
        self.gate = linear(d_model, spec.d_ff, spec.bias, ranks.gate) if spec.gated else None
        self.up = linear(d_model, spec.d_ff, spec.bias, ranks.up)
        self.down = linear(spec.d_ff, d_model, spec.bias, ranks.down, into_residual=True)

    def forward(self, x: Float[Tensor, "B T M"]) -> Float[Tensor, "B T M"]:
        if self.gate is None:
            hidden = self.activation(self.up(x))
        else:
            gate, up = together(x, self.gate, self.up)
            hidden = self.activation(gate) * up
        return self.down(dropout(hidden, self.dropout) if self.training and self.dropout else hidden)
