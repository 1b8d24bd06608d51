"""Products with quantized matrices: y = x Wᵀ, where W is dequantized a piece at a time and never stored.

Gradients flow to x, as QLoRA needs them; W has none. With quantized activations each token x becomes x ≈ q · s with
s = max |x| / 127, or of fp8 / 448, when the product is computed. On CPUs the sums of products with int8 activations are
integers: by C++ kernels within groups of whole blocks of 32 inputs, without them for int8 codes per channel. Gradients pass
through the rounding of activations unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..kernels.native import products as native
from ..kernels.plain import is_plain
from ..kernels.products.dense import dense_product
from ..kernels.products.formats import Int4, Int8
from ..kernels.products.integers import has_integer_products, integer_product, matrix_of
from .formats import Packed, format_of
from .formats.fp8 import LARGEST, NUMBERS
from .scheme import Activations

PIECE = 1 << 20  # weights that are dequantized at a time, so they are multiplied while the cache holds them


def product(x: Tensor, matrix: Packed, bias: Tensor | None = None, activations: Activations = "none") -> Tensor:
    """Return x Wᵀ + bias for x (…, d_in), in the dtype of x, or of autocast inside it."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    if matrix.order is not None:
        x, matrix = x.index_select(-1, matrix.order), _in_order(matrix)
    needs_gradient = torch.is_grad_enabled() and x.requires_grad
    codes = integers(matrix) if activations == "int8" and not needs_gradient else None
    if codes is not None and _has_kernel(x, codes):
        return integer_product(x, codes, bias, "int8")
    if codes is not None and _has_integer_sums(matrix):
        y = _integer_product(x, matrix)
    else:
        x = x if activations == "none" else _rounded(x, activations)
        y = _Product.apply(x, matrix) if needs_gradient else _multiplied(x, matrix)
    return y if bias is None else y + bias.to(y.dtype)


class _Product(torch.autograd.Function):
    """x Wᵀ with a gradient for x; W is dequantized again in the backward pass."""

    @staticmethod
    def forward(x: Tensor, matrix: Packed) -> Tensor:
        return _multiplied(x, matrix)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        matrix: Packed = ctx.matrix
        flat = grad.flatten(0, -2)
        out = grad.new_zeros(len(flat), matrix.shape[1])
        for rows in _pieces(matrix):
            out.addmm_(flat[:, rows], _dense(matrix.rows(rows), grad.dtype))
        return out.view(*grad.shape[:-1], -1), None


def _multiplied(x: Tensor, matrix: Packed) -> Tensor:
    codes = integers(matrix)
    if codes is not None and native.serves(x, (matrix_of(codes, None),)) and is_plain(x, matrix.codes):
        return integer_product(x, codes, None, "float")
    pieces = _pieces(matrix)
    if len(pieces) == 1:
        return dense_product(x, _dense(matrix, x.dtype))
    out = x.new_empty(*x.shape[:-1], matrix.shape[0])
    for rows in pieces:
        out[..., rows] = dense_product(x, _dense(matrix.rows(rows), x.dtype))
    return out


def integers(matrix: Packed) -> Int8 | Int4 | None:
    """The matrix as the C++ kernels read it, without copies of its codes; None if they can't."""
    name = matrix.format.name
    if matrix.order is not None:
        return None
    if name == "int8" and matrix.zeros is None:
        return Int8(matrix.codes, matrix.scales)
    if name == "int4":
        return Int4(matrix.codes, matrix.scales, None if matrix.zeros is None else matrix.zeros.float() + 8)
    return None


def _pieces(matrix: Packed) -> list[slice]:
    """The rows to dequantize at a time. While memory is counted on tensors without contents, the first and the last stand
    for all: a model of 7 billion weights has thousands, each of the same size."""
    d_out, d_in = matrix.shape
    step = max(1, PIECE // d_in)
    starts: Sequence[int] = range(0, d_out, step)
    if len(starts) > 2 and counting(matrix.codes) is not None:
        starts = (0, starts[-1])
    return [slice(start, start + step) for start in starts]


def _dense(matrix: Packed, dtype: torch.dtype) -> Tensor:
    """`matrix.dense(dtype)`. While memory is counted, once for all matrices of a size."""
    mode = counting(matrix.codes)
    if mode is None:
        return matrix.dense(dtype)
    sizes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in matrix.tensors().items())
    return mode.once((matrix.format.name, sizes, dtype), lambda: matrix.dense(dtype))


class MemoryCount(Protocol):
    """A mode that counts memory on tensors without contents."""

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return `make()`, whose memory is counted once for equal keys."""
        ...


def counting(tensor: Tensor) -> MemoryCount | None:
    """Return the mode that counts the memory of a tensor without contents, or None for any other tensor."""
    if torch.compiler.is_compiling():
        return None
    mode: MemoryCount | None = getattr(tensor, "fake_mode", None)
    return mode if hasattr(mode, "once") else None


def _in_order(matrix: Packed) -> Packed:
    tensors = {name: tensor for name, tensor in matrix.tensors().items() if name != "order"}
    return Packed(matrix.format, matrix.shape, **tensors)


def _rounded(x: Tensor, activations: Activations) -> Tensor:
    """Tokens rounded to int8 or fp8 by a scale each; the gradient is that of x."""
    wide = x.detach().float()
    if activations == "int8":
        codes, scales = quantized_tokens(wide)
        near = codes.float() * scales
    else:
        scales = (wide.abs().amax(-1, keepdim=True) / LARGEST).clamp(min=1e-30)
        near = (wide / scales).to(NUMBERS).float() * scales
    return x + (near.to(x.dtype) - x.detach())


def quantized_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes and fp32 scales of each token: x ≈ codes · scales, the largest number being ±127."""
    scales = (x.abs().amax(-1, keepdim=True).float() / 127).clamp(min=1e-30)
    return (x / scales).round().clamp(-127, 127).to(torch.int8), scales


def _has_kernel(x: Tensor, codes: Int8 | Int4) -> bool:
    """Whether the C++ kernels multiply integers here."""
    return (
        has_integer_products(codes) and native.serves(x, (matrix_of(codes, None),), True) and is_plain(x, codes.codes)
    )


def _has_integer_sums(matrix: Packed) -> bool:
    """Whether PyTorch multiplies these codes as integers: int8 per channel, on the CPU."""
    on_cpu = matrix.codes.device.type == "cpu"
    return on_cpu and matrix.format is format_of("int8") and matrix.scales.shape[1] == 1 and matrix.zeros is None


def _integer_product(x: Tensor, matrix: Packed) -> Tensor:
    codes, scales = quantized_tokens(x.float())
    sums = torch._int_mm(codes.flatten(0, -2), matrix.codes.T)
    return (sums.unflatten(0, x.shape[:-1]).float() * scales * matrix.scales[:, 0]).to(x.dtype)
