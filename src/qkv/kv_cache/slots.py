"""Growing buffers (B, K, slots, …) of a KV cache, and the base class of states whose tokens are in such slots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from torch import Tensor

from ..core.layout import Layout
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
    if buffer is None or buffer.shape[2] < need:
        slots = max(need + 64, 2 * at, room) if most is None else most
        larger = new.new_empty(*new.shape[:2], slots, *new.shape[3:])
        if buffer is not None:
            larger[:, :, :at] = buffer[:, :, :at]
        buffer = larger
    buffer[:, :, at:need] = new
    return buffer


def select(buffer: Tensor, rows: Tensor, used: int) -> Tensor:
    """The given rows of the used slots, in a buffer with the same number of slots."""
    out = buffer.new_empty(len(rows), *buffer.shape[1:])
    out[:, :, :used] = buffer[:, :, :used].index_select(0, rows)
    return out
