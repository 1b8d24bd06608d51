"""Tables computed by a function, made of other tables (concatenated, sliced, selected), or read from a stream."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .source import Example, Skipped, Table


class ComputedTable:
    """A table of `size` entries, each computed by `entry(i)` whenever it is read."""

    def __init__(self, size: int, entry: Callable[[int], Example | Skipped | None], weight: int = 1) -> None:
        self._size, self._entry, self.weight = size, entry, weight

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Any:
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
    """Several tables as one, in order; `names` are those of the tables, if any."""

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
    """A stream as a table: the entries that `open()` iterates over, by index. Going back reads again from the start.

    Its length is `sys.maxsize` until the last entry is read; entries beyond the end are None.
    """

    sequential = True

    def __init__(self, open: Callable[[], Iterator[Example | Skipped]]) -> None:
        self._open, self._size = open, sys.maxsize
        self._begin()

    def _begin(self) -> None:
        self._entries, self._at = self._open(), 0
        self._next = next(self._entries, None)

    def __len__(self) -> int:
        if self._next is None:
            self._size = self._at
        return self._size

    def __getitem__(self, i: int) -> Example | Skipped | None:
        if i < self._at:
            self._begin()
        while self._at < i and self._next is not None:
            self._forward()
        entry = self._next
        if entry is not None:
            self._forward()
        return entry

    def _forward(self) -> None:
        self._next, self._at = next(self._entries, None), self._at + 1
        if self._next is None:
            self._size = self._at
