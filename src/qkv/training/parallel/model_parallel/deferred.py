"""Linear layers whose weight gradients are computed later, so the gradients of their inputs are there sooner (Qi et al.
2023).

While a `Deferred` is open, a backward pass computes the gradients of inputs, and keeps x and ∂L/∂y of every linear layer.
`compute` then adds ∂L/∂W = (∂L/∂y)ᵀ x to the gradients. Other parameters have their gradients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....nn.layers.linear import Linear

Waiting = list[tuple[nn.Parameter, Tensor, Tensor]]


class Deferred:
    """The weight gradients of a model's linear layers that are still to be computed."""

    def __init__(self) -> None:
        self._waiting: Waiting | None = None

    @contextmanager
    def open(self) -> Iterator[Waiting]:
        """Inside the block, backward passes leave weight gradients to `compute`."""
        waiting: Waiting = []
        self._waiting = waiting
        try:
            yield waiting
        finally:
            self._waiting = None

    def add(self, weight: nn.Parameter, x: Tensor, gradient: Tensor) -> bool:
        """Leave a weight's gradient for later. False if nothing is left for later now."""
        if self._waiting is None or not weight.requires_grad:
            return False
        self._waiting.append((weight, x, gradient))
        return True


@torch.no_grad()
def compute(waiting: Waiting) -> None:
    """Add the gradients that were left."""
    for weight, x, gradient in waiting:
        d_weight = _product(gradient, x).to(weight.dtype)
        weight.grad = d_weight if weight.grad is None else weight.grad.add_(d_weight)
    waiting.clear()


def defer(model: nn.Module, switch: Callable[[nn.Module, str, Any], None]) -> Deferred:
    """Let the plain linear layers of a model leave their weight gradients for later. `switch` sets an attribute."""
    deferred = Deferred()
    for module in model.modules():
        if type(module) is Linear and "forward" not in vars(module):
            switch(module, "forward", partial(_forward, module, deferred))
    return deferred


def _forward(layer: Linear, deferred: Deferred, x: Tensor) -> Tensor:
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else layer.weight.dtype
    y: Tensor = _Linear.apply(x.to(dtype), layer.weight, deferred)
    return y if layer.bias is None else y + layer.bias.to(y.dtype)


def _product(gradient: Tensor, x: Tensor) -> Tensor:
    return gradient.flatten(0, -2).T @ x.flatten(0, -2)


class _Linear(torch.autograd.Function):
    """x Wᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter, deferred: Deferred) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.deferred, ctx.weight = deferred, weight
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        later = ctx.deferred.add(ctx.weight, x, gradient)
        d_weight = None if later or not weight.requires_grad else _product(gradient, x).to(weight.dtype)
        return gradient @ weight.to(gradient.dtype), d_weight, None
