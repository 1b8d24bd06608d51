"""Sequence-length bucketing: rows of similar length together, cut into batches by a token budget."""

from __future__ import annotations

import sys

import numpy as np

from .ragged import Index


def bucketed_order(lengths: Index, source_lengths: Index) -> Index:
    """An order in which neighbors have similar lengths: by the longer side, then by the shorter, alternately up and down.

    Both sides of a pair vary, and a batch is as wide as the longest of each. Rows whose longer side is n form an angle
    in the plane of lengths (n wide and up to n high, or the other way around); the order follows each angle and continues
    to the next where it ends. The sort is stable, so ties keep their shuffled order.
    """
    longer = np.maximum(lengths, source_lengths)
    difference = lengths - source_lengths
    return np.lexsort((np.where(longer % 2 == 1, difference, -difference), longer))


def batch_edges(lengths: Index, source_lengths: Index, tokens: int, max_rows: int | None) -> list[int]:
    """The first row of each batch, and the end. A batch has at most `tokens` slots once padded, and `max_rows` rows."""
    edges = [0]
    most = sys.maxsize if max_rows is None else max_rows
    n = wide = wide_source = 0
    for i, (length, source) in enumerate(zip(lengths.tolist(), source_lengths.tolist(), strict=True)):
        wide, wide_source, n = max(wide, length), max(wide_source, source), n + 1
        if n > 1 and (n * (wide + wide_source) > tokens or n > most):
            edges.append(i)
            n, wide, wide_source = 1, length, source
    return [*edges, len(lengths)] if n else edges
