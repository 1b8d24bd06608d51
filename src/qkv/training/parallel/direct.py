"""All-gather, reduce-scatter and reduce for ranks on CPUs, without gloo's intermediate copies.

gloo receives an all-gather into a buffer and copies it out, and its reduce-scatter is an all-reduce of a copy. Here each
rank receives directly into the result, and each of n ranks sends (n − 1)/n of the numbers, as in a ring. The order of a sum
does not depend on the order of arrival. `DirectGather` and `DirectScatter` serve FSDP2. NCCL makes no such
copies in operations on one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


def is_direct(tensor: Tensor) -> bool:
    """Whether a tensor is on a CPU, so these functions apply."""
    return tensor.device.type == "cpu"


class Handle(Protocol):
    """What an asynchronous operation returns, like `torch.distributed.Work`."""

    def wait(self) -> object: ...


class Transfers:
    """A handle for several transfers. After they complete, `wait` adds the received tensors to `total`."""

    def __init__(self, works: Sequence[Handle | None], total: Tensor | None = None, received: Sequence[Tensor] = ()):
        self.works, self.total, self.received = works, total, received

    def wait(self) -> bool:
        for work in self.works:
            if work is not None:
                work.wait()
        for tensor in self.received:
            assert self.total is not None
            self.total.add_(tensor)
        return True


def all_gather(parts: Sequence[Tensor], group: Group) -> Transfers:
    """Start an all-gather in place: each rank holds the part of its number and receives the others. Parts are contiguous."""
    return Transfers([dist.broadcast(part, group=group, group_src=i, async_op=True) for i, part in enumerate(parts)])


def reduce_scatter(parts: Sequence[Tensor], group: Group, out: Tensor) -> None:
    """Reduce-scatter: set `out` to the sum over ranks of this rank's part. Parts are contiguous and shaped like `out`."""
    mine, others = _members(group)
    received = [torch.empty_like(out) for _ in others]
    sent = [dist.isend(parts[rank], group=group, group_dst=rank) for rank in others]
    works = [dist.irecv(tensor, group=group, group_src=rank) for rank, tensor in zip(others, received, strict=True)]
    Transfers([*sent, *works]).wait()
    torch.add(parts[mine], received[0], out=out)
    for tensor in received[1:]:
        out.add_(tensor)


def reduce(owner: int, tensor: Tensor, group: Group) -> Transfers:
    """Start a reduce. After `wait`, the tensor of the owner is the sum over all ranks."""
    mine, others = _members(group)
    if mine != owner:
        return Transfers([dist.isend(tensor, group=group, group_dst=owner)])
    received = [torch.empty_like(tensor) for _ in others]
    works = [dist.irecv(part, group=group, group_src=rank) for rank, part in zip(others, received, strict=True)]
    return Transfers(works, tensor, received)


def _members(group: Group) -> tuple[int, list[int]]:
    """Return this rank's number in a group, and the numbers of the others."""
    mine = dist.get_rank(group)
    return mine, [rank for rank in range(dist.get_world_size(group)) if rank != mine]


class _Allocating:
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class DirectGather(_Allocating):
    """All-gather for FSDP2, whose input is a view of its output."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        transfers = all_gather(output_tensor.view(group.size(), -1).unbind(), group)
        transfers.wait()


class DirectScatter(_Allocating):
    """Reduce-scatter for FSDP2."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> None:
        reduce_scatter(input_tensor.view(group.size(), -1).unbind(), group, output_tensor)
