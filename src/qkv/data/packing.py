"""Packing: many documents into few rows of equal width."""

from __future__ import annotations

import bisect
from collections.abc import Sequence


def pack(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Rows of document numbers whose lengths add up to `width` at most: best fit, longest first.

    Best-fit decreasing uses at most 11/9 of the least possible number of rows, plus one (Johnson 1973). Raises
    ValueError for a document that is longer than a row: split it first.
    """
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # what is left in each row, and which row; sorted
    for document in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[document]
        if length > width:
            raise ValueError(f"a document of {length} tokens doesn't fit a row of {width}")
        tightest = bisect.bisect_left(space, (length, -1))
        if tightest == len(space):
            rows.append([document])
            bisect.insort(space, (width - length, len(rows) - 1))
        else:
            left, row = space.pop(tightest)
            rows[row].append(document)
            bisect.insort(space, (left - length, row))
    return rows
