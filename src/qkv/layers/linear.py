"""The linear layer of all projections, which LoRA and quantization replace."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from ..kernels.products.plain import is_plain
from ..kernels.products.several import products
from .quantized import linear


class Linear(nn.Module):
    """y = x Wᵀ + b, W of shape (d_out, d_in). `weight` is a parameter, or a `QuantizedMatrix`.

    For initialization: `into_residual` marks layers that write to the residual stream, `into_scores` is the head width of
    layers that make queries, else 0. `factor_of` is the size of the product (d_in, rank, d_out) that its matrix is a factor
    of, if it is one.
    """

    factor_of: tuple[int, int, int] | None = None

    def __init__(
        self, d_in: int, d_out: int, bias: bool = True, into_residual: bool = False, into_scores: int = 0
    ) -> None:
        super().__init__()
        self.d_in, self.d_out, self.into_residual, self.into_scores = d_in, d_out, into_residual, into_scores
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.d_in} → {self.d_out}, bias={self.bias is not None}"


def together(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """Return what each layer gives for x. Plain linear layers are one product where a kernel takes several matrices."""
    own = [layer for layer in layers if _is_bare(layer)]
    if len(own) < len(layers) or not is_plain(x):
        return [layer(x) for layer in layers]
    return products(x, [layer.weight for layer in own], [layer.bias for layer in own])


def _is_bare(layer: nn.Module) -> TypeGuard[Linear]:
    """Whether a layer computes x Wᵀ + b and nothing else: no adapter, no hooks, nothing in the place of its parts."""
    return (
        type(layer) is Linear
        and isinstance(layer.weight, Tensor)
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
    )
