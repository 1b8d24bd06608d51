"""Slot tables: which token each slot of a KV cache holds. Layers that keep the same tokens share a table."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...core.layout import Layout, Padding

Kind = TypeVar("Kind", bound="SlotTable")


@dataclass
class _Step:
    """Where the tokens of a step go. `wrapped`: the ring buffer is full, so they replace the oldest."""

    before: int
    count: int
    wrapped: bool


class SlotTable:
    """Positions, segments and roles of the tokens in a layer's slots: a ring buffer of `size` slots, or all tokens.

    Cache kinds that evict tokens by other rules, or keep them elsewhere, subclass it.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size
        self.length = 0  # tokens admitted and not rewound, including padding
        self.step = _Step(0, 0, False)
        self._kept: Layout | None = None  # the tokens in the slots
        self._attended: Layout | None = None  # the tokens that this step attends to

    @property
    def layout(self) -> Layout:
        assert self._attended is not None, "admit() comes first"
        return self._attended

    def open(self, rows: int) -> None:
        """Start with this number of rows."""

    def places(self, count: int) -> int | None:
        """The longest context after a step of `count` tokens, for caches that renumber positions; None for others."""
        return None

    def placed(self, layout: Layout) -> Layout:
        """The layout of the tokens that were just admitted."""
        return layout

    def check_admit(self, layout: Layout) -> None:
        """Raise ValueError if the tokens of a step don't fit."""

    def admit(self, layout: Layout) -> None:
        """Add the tokens of one step."""
        count, before = layout.shape[1], self.length
        self.step = _Step(before, count, self.size is not None and before + count > self.size)
        self.length += count
        if not self.step.wrapped:
            self._attended = self._kept = layout if self._kept is None else joined(self._kept, layout)
            return
        size = self.size
        assert size is not None, "only a ring buffer wraps"
        if count == 1 and self._kept is not None and before >= size:
            self._attended = self._kept = _overwritten(self._kept, layout, before % size)
        else:
            self._attended = layout if self._kept is None else joined(self._kept, layout)
            self._kept = _ring_order(self._attended, before, size)

    def next_positions(self, batch_size: int) -> Tensor:
        """(B, A) the positions after the last real token."""
        assert self._kept is not None
        return following(self._kept).expand(batch_size, -1)

    def reorder(self, rows: Tensor) -> None:
        self._kept = None if self._kept is None else self._kept.select(rows)
        self._attended = self._kept

    def check_rewind(self, n: int) -> None:
        """Raise ValueError if the last n tokens can't be removed."""
        if n < 0 or n > self.length:
            raise ValueError(f"can't rewind {n} tokens: the cache has {self.length}")
        if n and self.size is not None and self.length > self.size:
            raise ValueError(
                f"a window cache of {self.size} tokens has evicted the tokens before them and can't rewind after "
                f"{self.length}; use a full cache if tokens have to be removed"
            )

    def rewind(self, n: int) -> None:
        self.length -= n
        if n and self._kept is not None:
            self._attended = self._kept = self._kept.slice(0, self.length) if self.length else None

    def check_hide(self) -> None:
        """Raise ValueError if slots of single rows can't become padding."""
        if self.size is not None:
            raise ValueError(
                f"a window cache of {self.size} tokens can't remove tokens from single rows; use a cache that keeps all"
            )

    def hide(self, counts: Tensor) -> None:
        """Turn the last counts[b] slots of row b into padding."""
        assert self._kept is not None
        slots = self._kept.shape[1]
        hidden = torch.arange(slots, device=counts.device) >= slots - counts[:, None]
        positions = torch.where(hidden[..., None], -1, self._kept.positions)
        self._attended = self._kept = replace(
            self._kept, positions=positions, padding="mixed", sequential=False, start=None, lengths=None
        )

    @property
    def kept(self) -> Layout | None:
        """The tokens in the slots, if any."""
        return self._kept

    def tensors(self) -> dict[str, Tensor]:
        """What to save besides `length` and `kept`."""
        return {}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        """Take over saved values."""
        self.length, self._attended, self._kept = length, kept, kept


class SlidingSlotTable(SlotTable):
    """At least the last `keep` tokens, in order; the oldest are evicted `by` at a time. `first` counts those evicted."""

    def __init__(self, keep: int, by: int) -> None:
        super().__init__()
        self.keep, self.by, self.first = keep, by, 0

    def admit(self, layout: Layout) -> None:
        first = max(0, self.length - self.keep) // self.by * self.by
        if first > self.first and self._kept is not None:
            left = self._kept.shape[1] - (first - self.first)
            self._kept = self._kept.slice(first - self.first, self._kept.shape[1]) if left else None
            self.first = first
        super().admit(layout)

    def check_rewind(self, n: int) -> None:
        super().check_rewind(n)
        if n and self.first > max(0, self.length - n - self.keep + 1):
            raise ValueError(
                f"a window cache of {self.keep} tokens has evicted the first {self.first} of {self.length} and can't "
                f"rewind {n}; use a full cache if tokens have to be removed"
            )

    def check_hide(self) -> None:
        raise ValueError(
            f"a quantized window cache of {self.keep} tokens can't remove tokens from single rows; use a full cache"
        )

    def rewind(self, n: int) -> None:
        self.length -= n
        if n and self._kept is not None:
            left = self.length - self.first
            self._attended = self._kept = self._kept.slice(0, left) if left else None

    def tensors(self) -> dict[str, Tensor]:
        return {"first": torch.tensor(self.first)}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        self.first = int(tensors["first"])


class SlotTables(dict[Hashable, SlotTable]):
    """The slot tables of a model's layers, by the size of their ring buffers, created on demand."""

    def __missing__(self, size: Hashable) -> SlotTable:
        assert size is None or isinstance(size, int)
        self[size] = SlotTable(size)
        return self[size]

    def of(self, kind: type[Kind], *about: Any) -> Kind:
        """The slot table `kind(*about)`, shared by all layers that ask for the same."""
        key = (kind, *about)
        if key not in self:
            self[key] = kind(*about)
        table = self[key]
        assert isinstance(table, kind)
        return table


def following(layout: Layout) -> Tensor:
    """(B, A) the positions of text that follows each row: after its index, and after the largest of all other axes.

    After a video that lasts longer than its sides, these are other positions than text within the row would have: decoding
    continues after the last time, as in transformers.
    """
    after = layout.positions.amax(1) + 1
    return (
        torch.cat([after[:, :1], after[:, 1:].amax(1, keepdim=True).expand_as(after[:, 1:])], 1)
        if after.shape[1] > 1
        else after
    )


def _alike(*all_positions: Tensor) -> list[Tensor]:
    """Positions with as many axes as the most have; text has one position on all."""
    axes = max(positions.shape[-1] for positions in all_positions)
    return [p if p.shape[-1] == axes else p.expand(*p.shape[:-1], axes) for p in all_positions]


def joined(old: Layout, new: Layout) -> Layout:
    """The slots of `old`, then of `new`."""
    follows = old.start is not None and new.start == old.start + old.shape[1] and old.padding == "none"
    unmarked = old.roles is new.roles is old.segments is new.segments is None
    if follows and unmarked and new.padding == "none" and old.sequential and new.sequential:
        return Layout.full(old.shape[1] + new.shape[1], old.start or 0, old.device)
    b = max(old.shape[0], new.shape[0])

    def both(x: Tensor | None, y: Tensor | None) -> Tensor | None:
        if x is None and y is None:
            return None
        parts = [
            layout.positions.new_zeros(b, layout.shape[1]) if t is None else t.expand(b, *t.shape[1:])
            for t, layout in ((x, old), (y, new))
        ]
        return torch.cat(parts, 1)

    clean = old.padding == new.padding == "none"
    side: Padding = "left" if old.padding == "left" and new.padding == "none" else "mixed"
    return Layout(
        torch.cat([t.expand(b, *t.shape[1:]) for t in _alike(old.positions, new.positions)], 1),
        both(old.segments, new.segments),
        both(old.roles, new.roles),
        padding="none" if clean else side,
        one_segment=old.one_segment and new.one_segment,
    )


def _overwritten(old: Layout, new: Layout, slot: int) -> Layout:
    def put(x: Tensor | None, y: Tensor | None) -> Tensor | None:
        if x is None and y is None:
            return None
        x = old.positions[..., 0].new_zeros(old.shape) if x is None else x
        x = x.expand(max(x.shape[0], new.shape[0]), *x.shape[1:]).clone()
        x[:, slot] = 0 if y is None else y[:, 0]
        return x

    positions, newest = _alike(old.positions, new.positions)
    positions = positions.expand(max(old.shape[0], new.shape[0]), *positions.shape[1:]).clone()
    positions[:, slot] = newest[:, 0]
    return Layout(
        positions,
        put(old.segments, new.segments),
        put(old.roles, new.roles),
        padding="none" if old.padding == new.padding == "none" else "mixed",
        one_segment=old.one_segment and new.one_segment,
    )


def _ring_order(attended: Layout, before: int, size: int) -> Layout:
    """The last `size` tokens, token i in slot i mod size."""
    index = ring_index(before, attended.shape[1], size, attended.device)

    def pick(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_select(1, index)

    return Layout(
        attended.positions.index_select(1, index),
        pick(attended.segments),
        pick(attended.roles),
        padding="none" if attended.padding == "none" else "mixed",
        one_segment=attended.one_segment,
    )


def ring_index(before: int, attended: int, size: int, device: torch.device) -> Tensor:
    """For each slot, the index of its token among the old slots followed by this step's tokens."""
    old = min(before, size)
    slot = torch.arange(size, device=device)
    last = before + attended - old - 1
    newest = last - (last - slot) % size  # the latest token number that falls into the slot
    return torch.where(newest >= before, old + newest - before, slot)
