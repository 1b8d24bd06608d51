"""Buffers with slots for tokens along their third axis, (B, K, slots, …): written in place, doubled when full."""

from __future__ import annotations

from torch import Tensor


def put(held: Tensor | None, new: Tensor, at: int, room: int = 0, most: int | None = None) -> Tensor:
    """`held` with `new` written from slot `at` on; a larger buffer where that is past its end.

    Doubling makes n tokens cost O(n) copies. `room` slots are made at once, `most` at most.
    """
    need = at + new.shape[2]
    if held is None or held.shape[2] < need:
        slots = max(need + 64, 2 * at, room) if most is None else most
        larger = new.new_empty(*new.shape[:2], slots, *new.shape[3:])
        if held is not None:
            larger[:, :, :at] = held[:, :, :at]
        held = larger
    held[:, :, at:need] = new
    return held


def select(held: Tensor, rows: Tensor, used: int) -> Tensor:
    """The given rows of the slots that are used, with the room that there was for more."""
    out = held.new_empty(len(rows), *held.shape[1:])
    out[:, :, :used] = held[:, :, :used].index_select(0, rows)
    return out
