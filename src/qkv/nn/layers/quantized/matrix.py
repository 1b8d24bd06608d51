"""`QuantizedMatrix`: the weight of a linear layer, an embedding or a head as codes and scales.

It takes the place of the parameter `weight` of such a layer, and is no parameter: its tensors are buffers, which are saved
but not trained. They keep their dtype when a model is cast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from ...quantization.formats import Packed
from ...quantization.product import product
from ...quantization.scheme import Activations

PARTS = ("codes", "scales", "zeros", "order")


class QuantizedMatrix(nn.Module):
    """W (d_out, d_in) as the tensors of a `Packed`. Called with x it returns x Wᵀ + bias, x rounded as `activations` says.

    `dtype` is that of the model, in which rows of embeddings are returned; casting the model changes it. The matrices of
    `experts` stand below one another, each (d_out / experts, d_in).
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    order: Tensor | None

    def __init__(
        self,
        packed: Packed,
        activations: Activations = "none",
        dtype: torch.dtype | None = None,
        experts: int | None = None,
    ) -> None:
        super().__init__()
        self.experts = experts
        self.format, self.shape, self.activations = packed.format, packed.shape, activations
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        for name in PARTS:
            self.register_buffer(name, getattr(packed, name))

    @property
    def packed(self) -> Packed:
        """The matrix as a value."""
        return Packed(self.format, self.shape, self.codes, self.scales, self.zeros, self.order)

    @property
    def device(self) -> torch.device:
        return self.codes.device

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return product(x, self.packed, bias, self.activations)

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of the parameter whose place it takes."""
        d_out, d_in = self.shape
        return self.shape if self.experts is None else (self.experts, d_out // self.experts, d_in)

    def expert(self, x: Tensor, index: int) -> Tensor:
        """Return x W_eᵀ for one of the experts."""
        height = self.dense_shape[1]
        return product(x, self.packed.rows(slice(index * height, (index + 1) * height)), None, self.activations)

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows at integer ids (…): (…, d_in)."""
        chosen: Tensor = self.packed.rows(ids.flatten()).dense(self.dtype)
        return chosen.unflatten(0, ids.shape)

    def dense(self) -> Tensor:
        """Return the matrix, or matrices, that the codes stand for."""
        return self.packed.dense(self.dtype).view(self.dense_shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors with the model, without casting them."""
        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.device)).dtype
        for name in PARTS:
            tensor = getattr(self, name)
            if tensor is not None:
                moved = fn(tensor)
                setattr(self, name, moved if moved.dtype == tensor.dtype else tensor.to(moved.device))
        return self

    def extra_repr(self) -> str:
        groups = "per channel" if self.scales.shape[1] == 1 else f"groups of {self.packed.group}"
        return f"{self.shape[1]} → {self.shape[0]}, {self.format.name}, {groups}"


def dense(weight: Tensor | nn.Module) -> Tensor:
    """Return a weight as a tensor: as it is, or dequantized."""
    if isinstance(weight, QuantizedMatrix):
        return weight.dense()
    assert isinstance(weight, Tensor)
    return weight


def put(model: nn.Module, path: str, matrix: QuantizedMatrix) -> None:
    """Replace the parameter `weight` of a layer, and of layers that share it."""
    weight = model.get_submodule(path)._parameters["weight"]
    for layer in list(model.modules()):
        if weight is not None and layer._parameters.get("weight") is weight:
            del layer._parameters["weight"]
            layer.weight = matrix


def quantized(model: nn.Module) -> dict[str, QuantizedMatrix]:
    """Return the quantized weights of a model by the paths of their layers; shared ones once."""
    return {
        name.removesuffix(".weight"): module
        for name, module in model.named_modules()
        if isinstance(module, QuantizedMatrix)
    }


def check_not_quantized(model: nn.Module, what: str) -> None:
    """Raise ValueError if a model has quantized weights: `what` needs all of them."""
    if quantized(model):
        raise ValueError(
            f"{what} works on weights in full precision, and this model's are quantized; use the run that it was made from, "
            "or dequantize it: qkv convert RUN DIR --dequantize"
        )
