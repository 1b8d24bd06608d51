"""Slot tables: which token each slot of a KV cache holds. Layers that keep the same tokens share one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core.layout import Layout

Kind = TypeVar("Kind", bound="SlotTable")


@dataclass
class _Step:
    """Where the tokens of this step go. `wrapped`: the ring is full, so they take the place of the oldest."""

    before: int
    count: int
    wrapped: bool


class SlotTable:
    """Which token each slot holds: positions, segments, roles. `size` slots in a ring, or as many as it takes.

    Cache kinds with rules of their own for what is let go, or for where it is kept, subclass it.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size
        self.length = 0  # tokens ever admitted, padding included, less those rewound
        self.step = _Step(0, 0, False)
        self._kept: Layout | None = None  # what the slots hold
        self._seen: Layout | None = None  # what this step attends to

    @property
    def layout(self) -> Layout:
        assert self._seen is not None, "admit() comes first"
        return self._seen

    def open(self, rows: int) -> None:
        """Begin with so many rows."""

    def places(self, count: int) -> int | None:
        """The longest context after a step of `count` tokens, in a cache without end that counts positions in the cache
        itself; None where the stream's positions count."""
        return None

    def placed(self, layout: Layout) -> Layout:
        """Where the tokens stand that were just admitted."""
        return layout

    def check_admit(self, layout: Layout) -> None:
        """Raises ValueError where there is no room for the tokens of a step."""

    def admit(self, layout: Layout) -> None:
        """Take note of the tokens of one step."""
        count, before = layout.shape[1], self.length
        self.step = _Step(before, count, self.size is not None and before + count > self.size)
        self.length += count
        if not self.step.wrapped:
            self._seen = self._kept = layout if self._kept is None else joined(self._kept, layout)
        elif count == 1 and self._kept is not None and before >= self.size:  # type: ignore[operator]
            self._seen = self._kept = _overwritten(self._kept, layout, before % self.size)  # type: ignore[operator]
        else:
            self._seen = layout if self._kept is None else joined(self._kept, layout)
            self._kept = _ring_order(self._seen, before, self.size)  # type: ignore[arg-type]

    def next_positions(self, batch_size: int) -> Tensor:
        """(B,) one past the last real token that is held."""
        assert self._kept is not None
        return (self._kept.positions[..., 0].amax(1) + 1).expand(batch_size)

    def reorder(self, rows: Tensor) -> None:
        self._kept = None if self._kept is None else self._kept.select(rows)
        self._seen = self._kept

    def check_rewind(self, n: int) -> None:
        """Raises ValueError where n tokens can't be taken back."""
        if n < 0 or n > self.length:
            raise ValueError(f"can't rewind {n} tokens: {self.length} are held")
        if n and self.size is not None and self.length > self.size:
            raise ValueError(
                f"a window cache of {self.size} tokens has let go of what came before them and can't rewind after "
                f"{self.length}; use a full cache where tokens may be taken back"
            )

    def rewind(self, n: int) -> None:
        self.length -= n
        if n and self._kept is not None:
            self._seen = self._kept = self._kept.slice(0, self.length) if self.length else None

    @property
    def kept(self) -> Layout | None:
        """What the slots hold; None where that is nothing."""
        return self._kept

    def tensors(self) -> dict[str, Tensor]:
        """What it knows besides `length` and `kept`, to be saved with them."""
        return {}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        """Become what was saved."""
        self.length, self._seen, self._kept = length, kept, kept


class SlidingSlotTable(SlotTable):
    """At least the last `keep` tokens, in order: the oldest are let go `by` at a time. `first` counts those that are."""

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
                f"a window cache of {self.keep} tokens has let go of the first {self.first} of {self.length} and can't "
                f"rewind {n}; use a full cache where tokens may be taken back"
            )

    def rewind(self, n: int) -> None:
        self.length -= n
        if n and self._kept is not None:
            left = self.length - self.first
            self._seen = self._kept = self._kept.slice(0, left) if left else None

    def tensors(self) -> dict[str, Tensor]:
        return {"first": torch.tensor(self.first)}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        self.first = int(tensors["first"])


class SlotTables(dict[Hashable, SlotTable]):
    """The slot_tables of a model's layers, by the size of their ring; one is made when it is first asked for."""

    def __missing__(self, size: Hashable) -> SlotTable:
        assert size is None or isinstance(size, int)
        self[size] = SlotTable(size)
        return self[size]

    def of(self, kind: type[Kind], *about: Any) -> Kind:
        """The slot table of another kind that is made by `kind(*about)`, shared by all who ask for the same."""
        key = (kind, *about)
        if key not in self:
            self[key] = kind(*about)
        found = self[key]
        assert isinstance(found, kind)
        return found


def joined(old: Layout, new: Layout) -> Layout:
    """Slots of the one, then of the other."""
    follows = old.start is not None and new.start == old.start + old.shape[1] and old.padding == "none"
    unmarked = all(t is None for t in (old.roles, new.roles, old.segments, new.segments))
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
    side = "left" if old.padding == "left" and new.padding == "none" else "mixed"
    return Layout(
        both(old.positions, new.positions),  # type: ignore[arg-type]
        both(old.segments, new.segments),
        both(old.roles, new.roles),
        padding="none" if clean else side,  # type: ignore[arg-type]
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

    return Layout(
        put(old.positions, new.positions),  # type: ignore[arg-type]
        put(old.segments, new.segments),
        put(old.roles, new.roles),
        padding="none" if old.padding == new.padding == "none" else "mixed",
        one_segment=old.one_segment and new.one_segment,
    )


def _ring_order(seen: Layout, before: int, size: int) -> Layout:
    """The last `size` tokens, each in slot (its number mod size)."""
    index = ring_index(before, seen.shape[1], size, seen.device)

    def pick(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_select(1, index)

    return Layout(
        pick(seen.positions),  # type: ignore[arg-type]
        pick(seen.segments),
        pick(seen.roles),
        padding="none" if seen.padding == "none" else "mixed",
        one_segment=seen.one_segment,
    )


def ring_index(before: int, seen: int, size: int, device: torch.device) -> Tensor:
    """For each slot, where its token stands in what is seen: the slots as they were, then this step's tokens."""
    old = min(before, size)
    slot = torch.arange(size, device=device)
    last = before + seen - old - 1
    newest = last - (last - slot) % size  # the latest token number that falls into the slot
    return torch.where(newest >= before, old + newest - before, slot)
