"""The linear layer of all projections, which LoRA and quantization replace."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.plain import is_plain
from ..kernels.products.dense import dense_product
from ..kernels.products.several import products


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
        weight = self.weight
        return dense_product(x, weight, self.bias) if isinstance(weight, Tensor) else weight(x, self.bias)

    def extra_repr(self) -> str:
        return f"{self.d_in} → {self.d_out}, bias={self.bias is not None}"


def product(x: Tensor, weight: Tensor | nn.Module, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + bias for a weight W that is a tensor or a `QuantizedMatrix`."""
    if isinstance(weight, Tensor):
        return dense_product(x, weight, bias)
    out: Tensor = weight(x, bias)
    return out


def together(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """Return what each layer gives for x. Plain linear layers are one product if a kernel takes several matrices."""
    if is_plain(x) and all(map(_is_bare, layers)):
        return products(x, [layer.weight for layer in layers], [layer.bias for layer in layers])  # type: ignore[misc]
    return [layer(x) for layer in layers]


def _is_bare(layer: nn.Module) -> bool:
    """Whether a layer computes x Wᵀ + b and nothing else: no adapter, no hooks, nothing in the place of its parts."""
    return (
        type(layer) is Linear
        and isinstance(layer.weight, Tensor)
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
    )
