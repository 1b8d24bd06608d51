"""`Cache`: everything that a model remembers while it decodes, of all its layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ..core.layout import Layout
from .full import CrossState, KeyValueState, LayerState
from .slot_table import SlotTable, SlotTables

Make = Callable[[SlotTables, int | None], LayerState]  # given the tokens to make room for, where that is known


class Cache:
    """A state for each attention of each layer, and what they share.

    `layers[i]` is the ring that layer i needs (None: everything), or what makes its state. Layers of one size share a
    slot_table. `about` says what the cache is of, in JSON's terms: what a file that is loaded has to agree with. `device` is
    where it is loaded to.
    """

    def __init__(
        self,
        batch_size: int,
        layers: Sequence[int | Make | None],
        cross: bool,
        max_positions: int | None = None,
        capacity: int | None = None,
        about: Any = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.batch_size, self.max_positions = batch_size, max_positions
        self.about, self.device = about, device
        self.slot_tables = SlotTables()
        self.layers: list[LayerState] = [
            make(self.slot_tables, capacity) if callable(make) else KeyValueState(self.slot_tables[make], capacity)
            for make in layers
        ]
        if not self.slot_tables:
            self.slot_tables[None]  # someone has to know where rows stand
        for slot_table in self.slot_tables.values():
            slot_table.open(batch_size)
        self.cross = [CrossState() for _ in layers] if cross else []
        self.length = 0  # columns fed so far, padding included
        self._longest = 0  # tokens of the longest row, as the host counts them
        self._next: Tensor | None = None  # (B,) next position of each row, where rows differ

    def admit(self, layout: Layout | None, count: int, device: torch.device) -> Layout:
        """Tell every slot table of the next `count` tokens of each row; by default they continue where the row stands.

        Returns where they stand, which is in the stream, or in the cache where that is what positions mean.
        """
        if layout is None:
            layout = self._continued(count, device)
        uniform = layout.padding == "none" and layout.start == self.length and self._next is None
        slot_tables = list(self.slot_tables.values())
        for slot_table in slot_tables:
            slot_table.check_admit(layout)
        places = slot_tables[0].places(count)
        if places is None:
            self._check_context(layout, count)
        elif self.max_positions is not None and places > self.max_positions:
            raise self._too_long(places - 1)
        if not uniform:
            self._next = (layout.positions[..., 0].amax(1) + 1).expand(self.batch_size)
        for slot_table in slot_tables:
            slot_table.admit(layout)
        self.length += count
        return slot_tables[0].placed(layout)

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
            raise self._too_long(self._longest - 1)

    def _too_long(self, position: int) -> ValueError:
        return ValueError(
            f"position {position} is past the model's context of {self.max_positions}; shorten the prompt or "
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
        for slot_table in self.slot_tables.values():
            slot_table.reorder(rows)
        self._next = None if self._next is None else self._next.index_select(0, rows)
        self.batch_size = len(rows)

    def fork(self, rows: Int[Tensor, " N"] | None = None) -> Cache:
        """Another cache that goes on from these rows (all by default), as this one can too. Pages are shared by both, and
        other kinds copied."""
        twin = copy.deepcopy(self)
        if rows is not None:
            twin.reorder(rows)
        return twin

    def rewind(self, n: int) -> None:
        """Take back the last n tokens of every row. Raises ValueError where a window has let go of what is needed."""
        slot_tables = list(self.slot_tables.values())
        every: list[SlotTable | LayerState] = [*slot_tables, *self.layers]
        for each in every:
            each.check_rewind(n)
        for each in every:
            each.rewind(n)
        self.length -= n
        self._longest = max(self._longest - n, 0)
        if self._next is not None:
            self._next = slot_tables[0].next_positions(self.batch_size) if self.length else None

    def crop(self, n: int) -> None:
        """Keep the first n tokens of every row, padding at its left included."""
        if not 0 <= n <= self.length:
            raise ValueError(f"can't crop to {n} tokens: {self.length} are held; give a number from 0 to {self.length}")
        self.rewind(self.length - n)

    def save(self, path: str | Path) -> None:
        """Write all of it to a safetensors file, for `load` of a cache that the same model started."""
        from .io import save

        save(self, path)

    def load(self, path: str | Path) -> None:
        """Become what was saved. Raises ValueError where the file is of another model or another kind of cache."""
        from .io import load

        load(self, path)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes held, by what they are: keys and values; or payload, scales and residual; or pages."""
        sizes: dict[str, int] = {}
        for state in self._each():
            for name, size in getattr(state, "parts", {"other": state.nbytes}).items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values held."""
        return sum(state.nbytes for state in self._each())
