"""Take the first examples of a split, and count the others within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ...core.batch import Batch
from ...data.source import Example, Skipped, Table

COUNTING = 2.0  # seconds that counting the examples beyond a limit may take; longer if the evaluation took longer


@dataclass
class Clock:
    """Measures the time of an evaluation, and limits the time of counting the examples that it left out."""

    counts: bool = True
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def tally(self, sizes: Iterable[int]) -> int | None:
        """The sum of `sizes`; None if `counts` is false or the sum takes too long."""
        end = self.seconds + max(COUNTING, self.seconds)
        total = 0
        for size in sizes:
            if not self.counts or self.seconds > end:
                return None
            total += size
        return total


def first(table: Table, most: int) -> tuple[tuple[Example | Skipped, ...], int]:
    """The entries of a table up to the `most`-th good one, with the skipped ones between them, which are counted later; and
    the index of the next entry."""
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
    """For each entry from `start` on, 1 if it is good and 0 if it is skipped."""
    while start < len(table):
        entry = table[start]
        yield int(entry is not None and not isinstance(entry, Skipped))
        start += 1


def up_to(limit: int | None, batches: Iterable[Batch], rows_of: Callable[[Batch], int]) -> Iterator[Batch]:
    """The batches with the first `limit` rows, and no more."""
    rows = 0
    for batch in batches:
        rows += rows_of(batch)
        yield batch
        if limit is not None and rows >= limit:
            return
