"""Split the rows of a batch over ranks, balanced by the cost of a Transformer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .ragged import Index

_QUADRATIC = 4096.0  # length from which attention's T² pairs weigh more than the T tokens, for middle-sized models


class Shard(NamedTuple):
    """Which of `size` shards of every batch a rank reads."""

    rank: int = 0
    size: int = 1


WHOLE = Shard()


class Share(NamedTuple):
    """Rows start … stop − 1 of a batch. `idle`: there were too few, and they belong to another rank."""

    start: int
    stop: int
    idle: bool = False


def share_of(shard: Shard, lengths: Index, source_lengths: Index) -> Share:
    """The rows of a batch that a rank computes: consecutive ones, which need the least padding.

    The cost of a row is Σ_sides T + T²/4096. Boundaries are where the running sum of costs passes rank/size of the total.
    Every row belongs to one rank, and a rank without rows computes the first row for nothing.
    """
    n = len(lengths)
    if shard.size == 1:
        return Share(0, n)
    cost = sum(side + np.square(side.astype(np.float64)) / _QUADRATIC for side in (lengths, source_lengths))
    total = np.cumsum(np.maximum(cost, 1e-9))
    middle = total - np.maximum(cost, 1e-9) / 2  # a row belongs where its middle falls
    edges = np.searchsorted(middle, total[-1] * np.arange(1, shard.size) / shard.size)
    edges = _spread(np.concatenate([[0], edges, [n]]), n)
    start, stop = int(edges[shard.rank]), int(edges[shard.rank + 1])
    return Share(start, stop) if stop > start else Share(0, 1, idle=True)


def _spread(edges: Index, n: int) -> Index:
    """Move boundaries until every rank has a row, or no rank has more than one."""
    size = len(edges) - 1
    if n < size:
        return np.minimum(np.arange(size + 1), n)
    for i in range(1, size):
        edges[i] = max(edges[i], edges[i - 1] + 1)
    for i in range(size - 1, 0, -1):
        edges[i] = min(edges[i], edges[i + 1] - 1)
    return edges
