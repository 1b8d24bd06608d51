"""A weight matrix used in every step of a loop, whose gradient is one product over all steps instead of a sum.

    y_t = x_t M,   dM = Σ_t x_tᵀ dy_t = [x_1; x_2; …]ᵀ [dy_1; dy_2; …]

Autograd would add up T matrices of M's size, each from a product too thin to be fast. Here the backward pass of a step only
keeps x_t and dy_t, and the node through which M entered the loop, which runs last, computes the one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Shared:
    """`shared(x)` is x @ matrix: x (N, D) and a matrix (D, G), or x (B, N, S) and one matrix (S, G) for each row of a batch.

    Without gradients, under autocast and in compiled graphs it is the plain product.
    """

    def __init__(self, matrix: Tensor) -> None:
        plain = torch.compiler.is_compiling() or torch.is_autocast_enabled(matrix.device.type)
        self.deferred = torch.is_grad_enabled() and matrix.requires_grad and not plain
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.matrix: Tensor = _Enter.apply(matrix, self) if self.deferred else matrix

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = _Times.apply(x, self.matrix, self) if self.deferred else x @ self.matrix
        return out

    def gradient(self) -> Tensor | None:
        """Return the gradient of all steps since the last call."""
        if not self.pairs:
            return None
        x, grad = (torch.cat(column, -2) for column in zip(*self.pairs, strict=True))
        self.pairs = []
        return x.mT @ grad


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, shared: Shared) -> Tensor:
        ctx.shared = shared
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        assert grad is None, "steps pass their gradients through `pairs`"
        return ctx.shared.gradient(), None


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, shared: Shared) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.shared = shared
        return x @ matrix

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, matrix = ctx.saved_tensors
        ctx.shared.pairs.append((x, grad))
        return grad @ matrix.mT, None, None
