"""What a layer remembers while a model decodes: keys and values in slots, and a ledger of which token each slot holds.

Layers that remember alike share one `Ledger`, which is told of new tokens once a step; each layer's state then follows
it. `Full` keeps everything and grows; a ring keeps the last `size` tokens, which is all that a window ever sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .layout import Layout

KeysValues = tuple[Tensor, Tensor]


class LayerState(Protocol):
    """What one layer remembers, of whatever kind: how its mixer adds to it is between the two of them."""

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Row i becomes what row `rows[i]` was."""
        ...

    def check_rewind(self, n: int) -> None:
        """Raises ValueError where n tokens can't be taken back."""
        ...

    def rewind(self, n: int) -> None:
        """Take back the last n tokens of every row."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        ...


class State(LayerState, Protocol):
    """What a layer remembers that attends to keys and values."""

    @property
    def layout(self) -> Layout:
        """Where the tokens are whose keys and values the last `append` returned."""
        ...

    def append(self, k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"]) -> KeysValues:
        """Remember the tokens that the ledger was last told of; returns keys and values to attend to."""
        ...


@dataclass
class _Step:
    """Where the tokens of this step go. `wrapped`: the ring is full, so they take the place of the oldest."""

    before: int
    count: int
    wrapped: bool


class Ledger:
    """Which token each slot holds: positions, segments, roles. `size` slots in a ring, or as many as it takes."""

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

    def admit(self, layout: Layout) -> None:
        """Take note of the tokens of one step."""
        count, before = layout.shape[1], self.length
        self.step = _Step(before, count, self.size is not None and before + count > self.size)
        self.length += count
        if not self.step.wrapped:
            self._seen = self._kept = layout if self._kept is None else _joined(self._kept, layout)
        elif count == 1 and self._kept is not None and before >= self.size:  # type: ignore[operator]
            self._seen = self._kept = _overwritten(self._kept, layout, before % self.size)  # type: ignore[operator]
        else:
            self._seen = layout if self._kept is None else _joined(self._kept, layout)
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


class Ledgers(dict[int | None, Ledger]):
    """The ledgers of a model's layers by the size of their ring; one is made when it is first asked for."""

    def __missing__(self, size: int | None) -> Ledger:
        self[size] = Ledger(size)
        return self[size]


def _joined(old: Layout, new: Layout) -> Layout:
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
    index = _ring_index(before, seen.shape[1], size, seen.device)

    def pick(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_select(1, index)

    return Layout(
        pick(seen.positions),  # type: ignore[arg-type]
        pick(seen.segments),
        pick(seen.roles),
        padding="none" if seen.padding == "none" else "mixed",
        one_segment=seen.one_segment,
    )


def _ring_index(before: int, seen: int, size: int, device: torch.device) -> Tensor:
    """For each slot, where its token stands in what is seen: the slots as they were, then this step's tokens."""
    old = min(before, size)
    slot = torch.arange(size, device=device)
    last = before + seen - old - 1
    newest = last - (last - slot) % size  # the latest token number that falls into the slot
    return torch.where(newest >= before, old + newest - before, slot)


class KeyValueState:
    """Keys and values in slots, as its ledger says: everything, or a ring. Padding is stored as zeros."""

    def __init__(self, ledger: Ledger, capacity: int | None = None) -> None:
        self.ledger, self.capacity = ledger, capacity or 0
        self._k: Tensor | None = None  # (B, slots, K, D), slots ≥ what is held
        self._v: Tensor | None = None

    @property
    def layout(self) -> Layout:
        return self.ledger.layout

    def append(self, k: Tensor, v: Tensor) -> KeysValues:
        step, size = self.ledger.step, self.ledger.size
        if not step.wrapped:
            self._k, self._v = self._room(self._k, k, step), self._room(self._v, v, step)
            stop = step.before + step.count
            self._k[:, step.before : stop], self._v[:, step.before : stop] = k, v
            return self._k[:, :stop], self._v[:, :stop]
        assert size is not None
        if step.count == 1 and self._k is not None and step.before >= size:
            slot = step.before % size
            self._k[:, slot], self._v[:, slot] = k[:, 0], v[:, 0]  # type: ignore[index]
            return self._k[:, :size], self._v[:, :size]  # type: ignore[index]
        held = min(step.before, size)
        if self._k is not None and self._v is not None:
            k, v = torch.cat([self._k[:, :held], k], 1), torch.cat([self._v[:, :held], v], 1)
        index = _ring_index(step.before, k.shape[1], size, k.device)
        self._k, self._v = k.index_select(1, index), v.index_select(1, index)
        return k, v

    def _room(self, held: Tensor | None, new: Tensor, step: _Step) -> Tensor:
        """A buffer with room for this step: doubled when it is full, so that n tokens cost O(n) copies."""
        need = step.before + step.count
        if held is not None and held.shape[1] >= need:
            return held
        slots = max(need + 64, 2 * step.before, self.capacity)
        if self.ledger.size is not None:
            slots = self.ledger.size
        room = new.new_empty(new.shape[0], slots, *new.shape[2:])
        if held is not None:
            room[:, : step.before] = held[:, : step.before]
        return room

    def reorder(self, rows: Tensor) -> None:
        if self._k is not None and self._v is not None:
            used = min(self.ledger.length, self._k.shape[1])
            self._k, self._v = (_selected(t, rows, used) for t in (self._k, self._v))

    def check_rewind(self, n: int) -> None:
        """The ledger refuses what can't be taken back."""

    def rewind(self, n: int) -> None:
        """The ledger forgets; the slots are written over."""

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values that are held: 2 · tokens · K · d_head · bytes, for each row."""
        if self._k is None or self._v is None:
            return 0
        used = min(self.ledger.length, self._k.shape[1])
        return sum(t[:, :used].numel() * t.element_size() for t in (self._k, self._v))


def _selected(held: Tensor, rows: Tensor, used: int) -> Tensor:
    """The given rows, with the room that there was for more."""
    out = held.new_empty(len(rows), *held.shape[1:])
    out[:, :used] = held[:, :used].index_select(0, rows)
    return out


class CrossState:
    """The encoder's keys and values, projected once a sentence."""

    def __init__(self) -> None:
        self._kv: KeysValues | None = None
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        assert self._layout is not None
        return self._layout

    def fill(self, k: Tensor, v: Tensor, layout: Layout) -> None:
        self._kv, self._layout = (k, v), layout

    def append(self, k: Tensor, v: Tensor) -> KeysValues:
        raise AssertionError("an encoder's keys are never added to")

    @property
    def keys_values(self) -> KeysValues:
        assert self._kv is not None
        return self._kv

    def reorder(self, rows: Tensor) -> None:
        if self._kv is not None and self._layout is not None:
            self._kv = (self._kv[0].index_select(0, rows), self._kv[1].index_select(0, rows))
            self._layout = self._layout.select(rows)

    def check_rewind(self, n: int) -> None:
        """Nothing to refuse."""

    def rewind(self, n: int) -> None:
        """Nothing to take back."""

    @property
    def nbytes(self) -> int:
        return 0 if self._kv is None else sum(t.numel() * t.element_size() for t in self._kv)


Make = Callable[[Ledgers, int | None], LayerState]  # given the tokens to make room for, where that is known


class Cache:
    """Everything that a model remembers while it decodes: a state for each attention of each layer.

    `layers[i]` is the ring that layer i needs (None: everything), or what makes its state. Layers of one size share a
    ledger.
    """

    def __init__(
        self,
        batch_size: int,
        layers: Sequence[int | None | Make],
        cross: bool,
        max_positions: int | None = None,
        capacity: int | None = None,
    ) -> None:
        self.batch_size, self.max_positions = batch_size, max_positions
        self.ledgers = Ledgers()
        self.layers: list[LayerState] = [
            make(self.ledgers, capacity) if callable(make) else KeyValueState(self.ledgers[make], capacity)
            for make in layers
        ]
        if not self.ledgers:
            self.ledgers[None]  # someone has to know where rows stand
        self.cross = [CrossState() for _ in layers] if cross else []
        self.length = 0  # columns fed so far, padding included
        self._longest = 0  # tokens of the longest row, as the host counts them
        self._next: Tensor | None = None  # (B,) next position of each row, where rows differ

    def admit(self, layout: Layout | None, count: int, device: torch.device) -> Layout:
        """Tell every ledger of the next `count` tokens of each row; by default they continue where the row stands."""
        if layout is None:
            layout = self._continued(count, device)
        uniform = layout.padding == "none" and layout.start == self.length and self._next is None
        self._check_context(layout, count)
        if not uniform:
            self._next = (layout.positions[..., 0].amax(1) + 1).expand(self.batch_size)
        for ledger in self.ledgers.values():
            ledger.admit(layout)
        self.length += count
        return layout

    def _check_context(self, layout: Layout, count: int) -> None:
        """Refuse what goes past the model's context. The host counts the longest row, whether it is still there or not;
        only where that is too long is the device asked."""
        if layout.start is not None and layout.padding == "none":
            self._longest = max(self._longest, layout.start + count)
        elif layout.lengths is not None:
            self._longest += max(layout.lengths, default=0)
        else:
            self._longest += count
        if self.max_positions is None or self._longest <= self.max_positions:
            return
        self._longest = int(layout.positions.max()) + 1
        if self._longest > self.max_positions:
            raise ValueError(
                f"position {self._longest - 1} is past the model's context of {self.max_positions}; shorten the prompt or "
                "ask for fewer tokens"
            )

    def _continued(self, count: int, device: torch.device) -> Layout:
        if self._next is None:
            return Layout.full(count, start=self.length, device=device)
        positions = self._next[:, None] + torch.arange(count, device=device)
        return Layout(positions, padding="none", sequential=True)

    def _each(self) -> list[LayerState]:
        return [*self.layers, *self.cross]

    def reorder(self, rows: Int[Tensor, " N"], cross: bool = True) -> None:
        """Row i becomes what row `rows[i]` was: beams, duplicates for several samples, rows that are done dropped.

        `cross=False` where every row stays with its source (beams of one sentence change places): the encoder's keys are
        then left alone.
        """
        for state in self._each() if cross else self.layers:
            state.reorder(rows)
        for ledger in self.ledgers.values():
            ledger.reorder(rows)
        self._next = None if self._next is None else self._next.index_select(0, rows)
        self.batch_size = len(rows)

    def rewind(self, n: int) -> None:
        """Take back the last n tokens of every row. Raises ValueError where a window has let go of what is needed."""
        ledgers = list(self.ledgers.values())
        for each in (*ledgers, *self.layers):
            each.check_rewind(n)
        for each in (*ledgers, *self.layers):
            each.rewind(n)
        self.length -= n
        self._longest = max(self._longest - n, 0)
        if self._next is not None:
            self._next = ledgers[0].next_positions(self.batch_size) if self.length else None

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values held."""
        return sum(state.nbytes for state in self._each())
