"""Sequence-length bucketing: rows of similar length together, cut into batches by a token budget."""

from __future__ import annotations

import sys

import numpy as np

from .ragged import Index


def bucketed_order(lengths: Index, source_lengths: Index) -> Index:
    """An order in which neighbors have similar lengths: by the longer side, then by the shorter, alternately up and down.

    Both sides of a pair vary, and a batch is as wide as the longest of each. Rows whose longer side is n are an angle
    in the plane of lengths (n wide and up to n high, or the other way around); the order walks along each angle and on
    to the next where it ends. Stable: what came by chance breaks ties.
    """
    longer = np.maximum(lengths, source_lengths)
    difference = lengths - source_lengths
    return np.lexsort((np.where(longer % 2 == 1, difference, -difference), longer))


def batch_edges(lengths: Index, source_lengths: Index, tokens: int, max_rows: int | None) -> list[int]:
    """Where each batch begins, and the end: rows in order, at most `tokens` slots (and `max_rows` rows) once padded."""
    edges = [0]
    most = sys.maxsize if max_rows is None else max_rows
    n = wide = wide_source = 0
    for i, (length, source) in enumerate(zip(lengths.tolist(), source_lengths.tolist(), strict=True)):
        wide, wide_source, n = max(wide, length), max(wide_source, source), n + 1
        if n > 1 and (n * (wide + wide_source) > tokens or n > most):
            edges.append(i)
            n, wide, wide_source = 1, length, source
    return [*edges, len(lengths)] if n else edges
