"""Products of fp32 matrices by oneDNN, which on AMD's processors with AVX-512 is twice as fast as MKL.

PyTorch multiplies fp32 matrices by MKL, which uses vectors of 256 bits on processors that are not Intel's. oneDNN, through
which PyTorch multiplies bf16 matrices, uses all 512 bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ..native import weight_gradients

LEAST = 1 << 25  # multiplications of a product that is worth the calls from Python
AT_ONCE = 8192  # rows of a sum of products for which there is room at a time
CPU_INFO = Path("/proc/cpuinfo")


@cache
def is_faster() -> bool:
    """Whether this processor is one on which oneDNN is faster than MKL, and PyTorch has both."""
    mkl, onednn = torch.backends.mkl, torch.backends.mkldnn
    if not (mkl.is_available() and onednn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in lines and torch.backends.cpu.get_cpu_capability() == "AVX512"


def serves(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is the faster one for x (…, I) and a weight (O, I): large ones in fp32 on the CPU.

    Nothing may watch PyTorch's operators (`plain.is_unwatched`).
    """
    return (
        x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.shape[0] >= LEAST
        and x.is_cpu
        and weight.is_cpu
        and weight.dim() == 2
        and is_faster()
        and bool(torch.backends.mkldnn.enabled)
    )


def product(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """x Wᵀ + b, without gradients."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def put_product(
    into: Float[Tensor, "O I"],
    d: Float[Tensor, "N O"],
    x: Float[Tensor, "N I"],
    adds: bool = False,
    sums: Float[Tensor, " O"] | None = None,
) -> None:
    """Store the gradient of a weight, dᵀ x, in `into`, or add it if `adds`. Add the sum of d's rows to `sums` if given."""
    if weight_gradients.ready() and into.is_contiguous():
        weight_gradients.put(into, d, x, adds, sums)
        return
    for start in range(0, len(into), AT_ONCE):  # the product copies both
        rows = slice(start, start + AT_ONCE)
        part = product(d[:, rows].T, x.T)
        into[rows] = into[rows] + part if adds else part
    if sums is not None:
        sums += d.sum(0)


def workspace(rows: int, outs: int, columns: int) -> int:
    """Return the number of bytes that `put_product` allocates for d (rows, outs) and x (rows, columns)."""
    if weight_gradients.ready():
        return weight_gradients.room(rows, outs, columns)
    return min(AT_ONCE, outs) * (rows + columns) * torch.float32.itemsize


class LinearContext(Protocol):
    """What autograd keeps for the backward pass."""

    @property
    def saved_tensors(self) -> tuple[Tensor, Tensor]: ...
    @property
    def needs_input_grad(self) -> tuple[bool, bool, bool]: ...


class LinearFunction(torch.autograd.Function):
    """x Wᵀ + b with gradients. Gradients of gradients are by PyTorch's operators."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: LinearContext, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        flat, rows = grad.flatten(0, -2), x.flatten(0, -2)
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            d_x = grad @ weight if wants_x else None
            d_weight, d_bias = flat.T @ rows if wants_weight else None, None
        else:
            d_x = product(grad, weight.T) if wants_x else None
            d_weight, d_bias = None, grad.new_zeros(len(weight)) if wants_bias and wants_weight else None
            if wants_weight:
                d_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
                put_product(d_weight, flat, rows, sums=d_bias)
        if wants_bias and d_bias is None:
            d_bias = flat.sum(0)
        return d_x, d_weight, d_bias
