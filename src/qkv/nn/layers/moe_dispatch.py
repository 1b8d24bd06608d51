"""Dispatch tokens to the experts of an MoE layer, sorted by expert, and combine the results.

N tokens choose k experts each. The c-th choice of token t has number c · N + t, so all first choices come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


class Dispatch(NamedTuple):
    """order: the choice in each of k · N rows; inverse: the row of each choice; ends: the row after each expert's last.

    Choices of padding and choices over capacity come after the last end.
    """

    order: Int[Tensor, " R"]
    inverse: Int[Tensor, " R"]
    ends: Int[Tensor, " E"]


def dispatch(
    experts: Int[Tensor, "N K"], n_experts: int, real: Bool[Tensor, " N"] | None = None, capacity: float | None = None
) -> Dispatch:
    """Sort the choices of `real` tokens; with a capacity c, an expert keeps at most its first ⌈c · choices / n_experts⌉."""
    chosen = experts.T.flatten()
    if real is not None:
        chosen = torch.where(real.expand(experts.shape[1], -1).flatten(), chosen, n_experts)
    order, ends = _sorted(chosen, n_experts)
    rows = torch.arange(len(order), device=order.device)
    if capacity is not None:
        starts = torch.cat([ends.new_zeros(1), ends])  # of each expert, then of the choices without one
        over = rows - starts[chosen[order]] >= torch.ceil(capacity * ends[-1] / n_experts)
        chosen = chosen.masked_fill(torch.empty_like(over).scatter_(0, order, over), n_experts)
        order, ends = _sorted(chosen, n_experts)
    return Dispatch(order, torch.empty_like(order).scatter_(0, order, rows), ends)


def _sorted(chosen: Int[Tensor, " R"], n_experts: int) -> tuple[Int[Tensor, " R"], Int[Tensor, " E"]]:
    sizes = chosen.new_zeros(n_experts + 1).scatter_add_(0, chosen, torch.ones_like(chosen))
    return chosen.argsort(stable=True), sizes[:-1].cumsum(0)


def count(experts: Int[Tensor, "N K"], weight: Float[Tensor, " N"], n_experts: int) -> Float[Tensor, " E"]:
    """Count the choices of each expert, weighted by token."""
    each = weight[:, None].expand(experts.shape).flatten()
    return weight.new_zeros(n_experts).scatter_add_(0, experts.flatten(), each)


def spread(x: Float[Tensor, "N M"], plan: Dispatch) -> Float[Tensor, "R M"]:
    """Copy the token of each row."""
    out: Tensor = _Spread.apply(x, plan.order, plan.inverse)
    return out


def combine(y: Float[Tensor, "R M"], gates: Float[Tensor, "N K"], plan: Dispatch) -> Float[Tensor, "N M"]:
    """Sum gate · y over each token's choices."""
    out: Tensor = _Combine.apply(y, gates.to(y.dtype), plan.order, plan.inverse)
    return out


def _gathered(y: Tensor, inverse: Tensor, n: int, gates: Tensor | None = None) -> Tensor:
    """Sum the rows of each token in one pass."""
    return F.embedding_bag(inverse.view(-1, n).T.contiguous(), y, per_sample_weights=gates, mode="sum")


class _Spread(torch.autograd.Function):
    """`spread`, whose backward gathers the gradients of each token instead of scattering them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.n = len(x)
        return x.index_select(0, order % len(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return _gathered(grad, inverse, ctx.n), None, None


class _Combine(torch.autograd.Function):
    """`combine`; the gradient of a gate is the product of its row with the gradient of its token."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, gates: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(y, gates, order, inverse)
        return _gathered(y, inverse, len(gates), gates)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, gates, order, inverse = ctx.saved_tensors
        d_y = grad.index_select(0, order % len(gates))
        d_gates = (y * d_y).sum(-1).index_select(0, inverse).view(gates.shape[1], -1).T
        weight = gates.T.flatten().index_select(0, order)
        return d_y.mul_(weight[:, None]), d_gates, None, None
