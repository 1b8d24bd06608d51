"""Collective operations that autograd passes through.

The loss of a step is a sum over ranks, and the backward pass of each operation is its exact adjoint: that of a gather is a
reduce-scatter, that of a sum is a sum. So gradients are right whatever the ranks compute twice, and need no factors: a
parameter's gradient is the sum over all ranks that have it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .direct import all_gather, is_direct, reduce_scatter
from .world import World

# PyTorch 2.13 renamed these. Unlike the operations on lists, they need no second buffer with NCCL.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gather(x: Tensor, ranks: World, axis: int) -> Tensor:
    """The tensors of all ranks, which have the same shape, one after the other along an axis."""
    out: Tensor = _Gather.apply(x, ranks, axis)
    return out


def sum_and_scatter(x: Tensor, ranks: World, axis: int) -> Tensor:
    """This rank's part, along an axis, of the sum over ranks. The ranks must divide the axis."""
    out: Tensor = _SumAndScatter.apply(x, ranks, axis)
    return out


def shared(x: Tensor, ranks: World) -> Tensor:
    """A tensor that all ranks have. The backward pass sums their gradients, in fp32."""
    out: Tensor = _Shared.apply(x, ranks)
    return out


def exchange(x: Tensor, ranks: World, sent: list[int], received: list[int]) -> Tensor:
    """Send the first sent[0] rows to rank 0, the next sent[1] to rank 1 and so on; received[i] rows come from rank i."""
    out: Tensor = _Exchange.apply(x, ranks, sent, received)
    return out


def swapped(x: Tensor, ranks: World) -> Tensor:
    """Send an equal share of the rows to each rank, in order, and return the shares that come. It has no gradient."""
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x.contiguous(), group=ranks.group)
    return out


def _gathered(x: Tensor, ranks: World, axis: int) -> Tensor:
    whole = x.new_empty(ranks.size, *x.shape)
    parts = whole.unbind()
    if is_direct(x):
        parts[ranks.rank].copy_(x)
        all_gather(parts, ranks.group).wait()
    else:
        _all_gather(whole.view(-1), x.flatten(), group=ranks.group)
    return whole.flatten(0, 1) if axis == 0 else torch.cat(parts, axis)


def _scattered(x: Tensor, ranks: World, axis: int) -> Tensor:
    parts = torch.stack(x.chunk(ranks.size, axis)) if axis else x.contiguous().unflatten(0, (ranks.size, -1))
    own = torch.empty_like(parts[0])
    if is_direct(x):
        reduce_scatter(parts.unbind(), ranks.group, own)
    else:
        _reduce_scatter(own.view(-1), parts.view(-1), group=ranks.group)
    return own


def _exchanged(x: Tensor, ranks: World, sent: list[int], received: list[int]) -> Tensor:
    out = x.new_empty(sum(received), *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), received, sent, group=ranks.group)
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: World, axis: int) -> Tensor:
        ctx.arguments = ranks, axis
        return _gathered(x, ranks, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _scattered(gradient, *ctx.arguments), None, None


class _SumAndScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: World, axis: int) -> Tensor:
        ctx.arguments = ranks, axis
        return _scattered(x, ranks, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _gathered(gradient, *ctx.arguments), None, None


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: World) -> Tensor:
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        return ctx.ranks.sum(wide).to(gradient.dtype), None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: World, sent: list[int], received: list[int]) -> Tensor:
        ctx.arguments = ranks, received, sent
        return _exchanged(x, ranks, sent, received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchanged(gradient, *ctx.arguments), None, None, None
