"""Tables computed by a function, made of other tables (concatenated, sliced, selected), or read from a stream."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .source import Example, Skipped, Table

_SAVE_EVERY = 64  # entries of a stream; as many at most are read again when it is resumed


class ComputedTable:
    """A table of `size` entries, each computed by `entry(i)` whenever it is read."""

    def __init__(self, size: int, entry: Callable[[int], Example | Skipped | None], weight: int = 1) -> None:
        self._size, self._entry, self.weight = size, entry, weight

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example | Skipped | None:
        if not 0 <= i < self._size:
            raise IndexError(i)
        return self._entry(i)


def weight_of(table: Table) -> int:
    """About how many ordinary lines one entry of a table is worth, see `Table`."""
    return getattr(table, "weight", 1)


def slice_table(table: Table, start: int, stop: int) -> Table:
    """The entries start … stop − 1 of a table."""
    return ComputedTable(stop - start, lambda i: table[start + i], weight_of(table))


def subset_table(table: Table, indices: Sequence[int]) -> Table:
    """The entries of a table at `indices`."""
    return ComputedTable(len(indices), lambda i: table[indices[i]], weight_of(table))


class ConcatTable:
    """Several tables as one, in order; `names` are the tables' names, if any."""

    def __init__(self, tables: Sequence[Table], names: Sequence[str] = ()) -> None:
        self._tables, self.names = tables, names
        self._starts = np.cumsum([0, *(len(table) for table in tables)]).tolist()
        self.weight = max(map(weight_of, tables), default=1)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, i: int) -> Example | Skipped | None:
        which = self.table_of(i)
        return self._tables[which][i - self._starts[which]]

    def table_of(self, i: int) -> int:
        return bisect.bisect_right(self._starts, i) - 1


class StreamTable:
    """A stream as a table: the entries of an iterator, by index. Going back reads again from the start.

    Its length is `sys.maxsize` until the last entry is read; entries beyond the end are None.

    open():             the entries from the first on.
    save():             the state of the stream before its next entry, as JSON has it; None if it has none.
    load(entry, state): the entries from one on, before which `save` gave this state.
    """

    sequential = True

    def __init__(
        self,
        open: Callable[[], Iterator[Example | Skipped]],
        save: Callable[[], Any] = lambda: None,
        load: Callable[[int, Any], Iterator[Example | Skipped]] | None = None,
    ) -> None:
        self._open, self._save, self._load, self._size = open, save, load, sys.maxsize
        self._restart()

    def place(self) -> dict[str, Any] | None:
        """A place at or shortly before the next entry, from which `go_to` reads on in another process."""
        return self._place

    def go_to(self, place: dict[str, Any]) -> None:
        """Go to a place without reading what is before it. A state that the stream refuses is left unused."""
        if self._load is None:
            return
        try:
            self._begin(self._load(place["entry"], place["state"]), place["entry"], place)
        except Exception:  # the state is of another version of a library
            self._restart()

    def _restart(self) -> None:
        self._begin(self._open(), 0, None)

    def _begin(self, entries: Iterator[Example | Skipped], at: int, place: dict[str, Any] | None) -> None:
        self._entries, self._at, self._place = entries, at, place
        self._next = next(entries, None)

    def __len__(self) -> int:
        if self._next is None:
            self._size = self._at
        return self._size

    def __getitem__(self, i: int) -> Example | Skipped | None:
        if i < self._at:
            self._restart()
        while self._at < i and self._next is not None:
            self._forward()
        entry = self._next
        if entry is not None:
            self._forward()
        return entry

    def _forward(self) -> None:
        self._at += 1
        if self._at % _SAVE_EVERY == 0 and (state := self._save()) is not None:
            self._place = {"entry": self._at, "state": state}
        self._next = next(self._entries, None)
        if self._next is None:
            self._size = self._at
