"""The linear layer of all projections, which LoRA and quantization replace."""

from __future__ import annotations

from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..kernels.plain import is_plain
from ..kernels.products.dense import dense_product
from ..kernels.products.several import products
from .quantized.matrix import dense


class Linear(nn.Linear):
    """y = x Wᵀ + b, W of shape (out_features, in_features). `weight` is a parameter, or a `QuantizedMatrix`.

    A `torch.nn.Linear`, so other libraries find and replace it; unlike PyTorch's it starts without numbers, which a model's
    `Initialization` draws. `into_residual` marks layers that write to the residual stream, `into_scores` is the head width
    of layers that make queries, else 0. `factor_of` is the size of the product (in, rank, out) that its matrix is a factor
    of, if it is one.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None  # type: ignore[assignment]
    factor_of: tuple[int, int, int] | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        into_residual: bool = False,
        into_scores: int = 0,
    ) -> None:
        nn.Module.__init__(self)  # `nn.Linear` would draw random numbers
        self.in_features, self.out_features = in_features, out_features
        self.into_residual, self.into_scores = into_residual, into_scores
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        return dense_product(x, weight, self.bias) if isinstance(weight, Tensor) else weight(x, self.bias)


def with_weight(layer: Linear, weight: nn.Parameter, bias: nn.Parameter | None) -> Linear:
    """Return a plain linear layer with this weight and bias in the place of another layer."""
    out, width = weight.shape
    made = Linear(width, out, False, "meta", into_residual=layer.into_residual, into_scores=layer.into_scores)
    made.weight, made.bias = weight, bias
    return made.train(layer.training)


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


def matrix(layer: nn.Module) -> Float[Tensor, "out in"]:
    """Return W of a layer y = x Wᵀ, for callers that apply it in parts.

    A layer with an adapter, factors or hooks, or another in its place, is applied to the unit vectors.
    """
    if _is_original(layer):
        return dense(layer.weight)
    like = next(p for p in layer.parameters() if p.is_floating_point())
    columns: Tensor = layer(torch.eye(int(layer.in_features), device=like.device, dtype=like.dtype))  # type: ignore[arg-type]
    return columns.mT


def _is_original(layer: nn.Module) -> TypeGuard[Linear]:
    """Whether a layer computes x Wᵀ + b and nothing else: no adapter, no hooks, nothing in its place."""
    watched = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
    return type(layer) is Linear and not watched


def _is_bare(layer: nn.Module) -> bool:
    """Whether a layer is an original one with a weight that is not quantized."""
    return _is_original(layer) and isinstance(layer.weight, Tensor)
