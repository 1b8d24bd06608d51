"""Collective operations among ranks on CPUs without copies: all-gather, reduce-scatter and reduce over gloo's transfers.

gloo receives an all-gather into a buffer and copies it out, and its reduce-scatter is an all-reduce of a copy. Here a rank
receives where the result is wanted, and each of n ranks sends (n − 1)/n of the numbers, as in a ring. A sum has the same
order whatever arrives first. `DirectGather` and `DirectScatter` do this for FSDP2. On GPUs, NCCL needs no copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


def is_direct(tensor: Tensor) -> bool:
    """Whether these functions are for a tensor: those on CPUs."""
    return tensor.device.type == "cpu"


class Waited(Protocol):
    """Transfers that are under way."""

    def wait(self) -> Any: ...


class Transfers:
    """Several transfers. When they have ended, the tensors that were received are added to a total."""

    def __init__(self, works: Sequence[Waited | None], total: Tensor | None = None, received: Sequence[Tensor] = ()):
        self.works, self.total, self.received = works, total, received

    def wait(self) -> bool:
        for work in self.works:
            if work is not None:
                work.wait()
        for tensor in self.received:
            assert self.total is not None
            self.total.add_(tensor)
        return True


def fill(parts: Sequence[Tensor], group: Group) -> Transfers:
    """Begin an all-gather in place: each rank has its own of the contiguous tensors, and receives the others."""
    return Transfers([dist.broadcast(part, group=group, group_src=i, async_op=True) for i, part in enumerate(parts)])


def sum_parts(parts: Sequence[Tensor], group: Group, out: Tensor) -> None:
    """Reduce-scatter: `out` becomes the sum over ranks of this rank's part. The parts are contiguous and have its shape."""
    mine, others = _members(group)
    received = [torch.empty_like(out) for _ in others]
    sent = [dist.isend(parts[rank], group=group, group_dst=rank) for rank in others]
    works = [dist.irecv(tensor, group=group, group_src=rank) for rank, tensor in zip(others, received, strict=True)]
    Transfers([*sent, *works]).wait()
    torch.add(parts[mine], received[0], out=out)
    for tensor in received[1:]:
        out.add_(tensor)


def sum_to(owner: int, tensor: Tensor, group: Group) -> Transfers:
    """Begin a reduce: on the owner, the tensor becomes the sum over ranks when this is waited for."""
    mine, others = _members(group)
    if mine != owner:
        return Transfers([dist.isend(tensor, group=group, group_dst=owner)])
    received = [torch.empty_like(tensor) for _ in others]
    works = [dist.irecv(part, group=group, group_src=rank) for rank, part in zip(others, received, strict=True)]
    return Transfers(works, tensor, received)


def _members(group: Group) -> tuple[int, list[int]]:
    """This rank of a group, and the others."""
    mine = dist.get_rank(group)
    return mine, [rank for rank in range(dist.get_world_size(group)) if rank != mine]


class _Allocating:
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class DirectGather(_Allocating):
    """FSDP2's all-gather, whose input is a part of its output."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        transfers = fill(output_tensor.view(group.size(), -1).unbind(), group)
        transfers.wait()


class DirectScatter(_Allocating):
    """FSDP2's reduce-scatter."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        sum_parts(input_tensor.view(group.size(), -1).unbind(), group, output_tensor)
