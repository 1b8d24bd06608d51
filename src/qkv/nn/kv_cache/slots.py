"""Growing buffers (B, K, slots, …) of a KV cache, and the base class of states whose tokens are in such slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ...core.layout import Layout
from .slot_table import SlotTable

Table = TypeVar("Table", bound=SlotTable)


class SlotState(Generic[Table]):
    """Base of states with tokens in the slots of a slot table. Subclasses define the other methods of `State`."""

    unrotated = False

    def __init__(self, slot_table: Table) -> None:
        self.slot_table = slot_table

    @property
    def layout(self) -> Layout:
        return self.slot_table.layout

    def check_rewind(self, n: int) -> None:
        """Nothing to check: the slot table refuses tokens that can't be removed."""

    def rewind(self, n: int) -> None:
        """Nothing to do by default: the slots will be overwritten."""

    def tensors(self) -> dict[str, Tensor]:
        raise NotImplementedError

    @property
    def parts(self) -> dict[str, int]:
        return {"keys and values": size_of(self.tensors().values())}

    @property
    def nbytes(self) -> int:
        return sum(self.parts.values())


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)


def put(buffer: Tensor | None, new: Tensor, at: int, room: int = 0, most: int | None = None) -> Tensor:
    """Write `new` to slots from `at` on; returns the buffer, or a larger copy if it did not fit.

    Doubling makes n tokens cost O(n) copies. A new buffer has at least `room` slots, or exactly `most`.
    """
    need = at + new.shape[2]
    if buffer is None:
        buffer = new.new_empty(*new.shape[:2], slots_for(at, need, room) if most is None else most, *new.shape[3:])
    else:
        buffer = with_room(buffer, at, need, room, most)
    buffer[:, :, at:need] = new
    return buffer


def with_room(buffer: Tensor, used: int, need: int, room: int = 0, most: int | None = None) -> Tensor:
    """The buffer, or if it has fewer than `need` slots a larger copy of the `used` slots."""
    if buffer.shape[2] >= need:
        return buffer
    slots = slots_for(used, need, room) if most is None else most
    larger = buffer.new_empty(*buffer.shape[:2], slots, *buffer.shape[3:])
    larger[:, :, :used] = buffer[:, :, :used]
    return larger


def slots_for(used: int, need: int, room: int) -> int:
    """How many slots to allocate for `need` tokens."""
    return max(need + 64, 2 * used, room)


def select(buffer: Tensor, rows: Tensor, used: int) -> Tensor:
    """The given rows of the used slots, in a new buffer with the same number of slots."""
    out = buffer.new_empty(len(rows), *buffer.shape[1:])
    if torch.is_grad_enabled() and buffer.requires_grad:
        out[:, :, :used] = buffer[:, :, :used].index_select(0, rows)
    else:
        torch.index_select(buffer[:, :, :used], 0, rows, out=out[:, :, :used])
    return out


selecting_kernels: list[Callable[[Tensor, Tensor, int], bool]] = []
"""Kernels that `select_in_place` tries in order. Each returns whether it moved the rows. `fused_step` adds its own."""


def select_in_place(buffer: Tensor, rows: Tensor, used: int) -> None:
    """Replace the used slots by the slots of the given rows, as many as the buffer has.

    Faster than a new buffer, whose pages the kernel would clear first.
    """
    if not any(kernel(buffer, rows, used) for kernel in selecting_kernels):
        own = buffer[:, :, :used]
        own.copy_(own.index_select(0, rows))
