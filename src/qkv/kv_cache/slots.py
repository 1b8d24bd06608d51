"""Growing buffers (B, K, slots, …) of a KV cache: written in place, doubled when full."""

from __future__ import annotations

from torch import Tensor


def put(buffer: Tensor | None, new: Tensor, at: int, room: int = 0, most: int | None = None) -> Tensor:
    """Write `new` from slot `at` on, into a larger copy of the buffer where it does not fit.

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
    """The given rows of the used slots, in a buffer of the same number of slots."""
    out = buffer.new_empty(len(rows), *buffer.shape[1:])
    out[:, :, :used] = buffer[:, :, :used].index_select(0, rows)
    return out
