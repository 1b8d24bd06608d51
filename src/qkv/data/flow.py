"""A table of examples that come one after the other, as many as there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from .source import Example, Skipped


class Flow:
    """What `open()` iterates over, by index. Going on is cheap; going back reads again from the beginning.

    Its length is `sys.maxsize` until the end was seen, which is when the last entry is read; what is asked for beyond
    it is None.
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
