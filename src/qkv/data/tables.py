"""Tables made of other tables: concatenated, sliced, selected; and streams read as a table."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .source import Example, Skipped, Table


class SliceTable:
    """The entries start … stop − 1 of a table."""

    def __init__(self, table: Table, start: int, stop: int) -> None:
        self._table, self._start, self._size = table, start, stop - start
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example | Skipped | None:
        if not 0 <= i < self._size:
            raise IndexError(i)
        return self._table[self._start + i]


class ConcatTable:
    """Several tables as one, in order; `names` are those of the tables, if any."""

    def __init__(self, tables: Sequence[Table], names: Sequence[str] = ()) -> None:
        self._tables, self.names = tables, names
        self._starts = np.cumsum([0, *(len(table) for table in tables)]).tolist()
        self.weight = max((getattr(table, "weight", 1) for table in tables), default=1)

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


class SubsetTable:
    """Some entries of a table."""

    def __init__(self, table: Table, indices: tuple[int, ...]) -> None:
        self._table, self._indices = table, indices
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        return self._table[self._indices[i]]
