"""GELU (Hendrycks & Gimpel 2016), on CPUs in C++.

f(x) = x Φ(x),   or by tanh f(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .native import gelu as native
from .plain import is_unwatched

LEAST = 1 << 16  # elements from which the kernel is faster, including the call from Python


def gelu(x: Tensor, by_tanh: bool = False) -> Tensor:
    """Gaussian error linear unit, x Φ(x), or its approximation by tanh: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    free = x.is_cpu and x.dtype == torch.float32 and is_unwatched(x)  # before the size, which an exporter would fix
    if free and x.numel() >= LEAST and x.is_contiguous() and native.ready():
        out: Tensor = Gelu.apply(x, by_tanh)
        return out
    return F.gelu(x, approximate="tanh" if by_tanh else "none")


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU approximated by tanh. A function, which copies of a model share: kernels know activations by identity."""
    return gelu(x, by_tanh=True)


class GeluContext(Protocol):
    """What autograd keeps for the backward pass."""

    by_tanh: bool

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    def save_for_backward(self, *tensors: Tensor) -> None: ...


class Gelu(torch.autograd.Function):
    """f(x) with its gradient. Gradients of gradients are by PyTorch's operators."""

    @staticmethod
    def forward(x: Tensor, by_tanh: bool) -> Tensor:
        return native.run(x, None, by_tanh)

    @staticmethod
    def setup_context(ctx: GeluContext, inputs: tuple[Tensor, bool], output: Tensor) -> None:
        x, ctx.by_tanh = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: GeluContext, *grads: Tensor) -> tuple[Tensor | None, None]:
        (x,), (grad,) = ctx.saved_tensors, grads
        if torch.is_grad_enabled() or not grad.is_contiguous():  # the gradient is to be differentiated again
            return torch.ops.aten.gelu_backward(grad, x, approximate="tanh" if ctx.by_tanh else "none"), None
        return native.run(x, grad, ctx.by_tanh), None
