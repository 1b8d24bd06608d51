"""Take the first examples of a split, and count the others within a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..data.source import Example, Skipped, Table

COUNTING = 2.0  # seconds that counting what a limit leaves out may take, or as many as the evaluation took


@dataclass
class Clock:
    """How long an evaluation has taken, and how long counting what it left out may still take."""

    counts: bool = True
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def tally(self, sizes: Iterable[int]) -> int | None:
        """The sum; None where nobody asks for it, or where it takes too long."""
        end = self.seconds + max(COUNTING, self.seconds)
        total = 0
        for size in sizes:
            if not self.counts or self.seconds > end:
                return None
            total += size
        return total


def first(table: Table, most: int) -> tuple[tuple[Example | Skipped, ...], int]:
    """A table's entries up to so many good ones, with the bad ones between, which are to be counted; and the index of the
    entry after these."""
    entries: list[Example | Skipped] = []
    good = i = 0
    while good < most and i < len(table):
        entry = table[i]
        i += 1
        if entry is not None:
            entries.append(entry)
            good += not isinstance(entry, Skipped)
    return tuple(entries), i


def goods(table: Table, start: int) -> Iterator[int]:
    """For each entry from `start` on 1 if it is a good one, else 0."""
    while start < len(table):
        entry = table[start]
        yield int(entry is not None and not isinstance(entry, Skipped))
        start += 1
