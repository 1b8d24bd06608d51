"""Time of collective operations: ring and tree algorithms over a group of ranks (Thakur et al. 2005).

With n ranks, B bytes of the whole tensor, bandwidth b and latency a:

    all-gather, reduce-scatter   (n − 1)/n · B/b + (n − 1) · a            ring
    all-reduce                   2 (n − 1)/n · B/b + 2 log₂ n · a         ring for large tensors, tree for small ones
    all-to-all                   (n − 1)/n · B/b + (n − 1) · a            B: what one rank has
    send                         B/b + a
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .network import Network


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate: `ranks` of them, each `stride` after the one before."""

    network: Network
    ranks: int
    stride: int = 1

    @property
    def _rate(self) -> float:
        return self.network.bandwidth(self.ranks, self.stride)

    @property
    def _latency(self) -> float:
        return self.network.latency(self.ranks, self.stride)

    def all_gather(self, size: float) -> float:
        """Seconds until every rank has the whole of `size` bytes, of which each had a part; a reduce-scatter too."""
        n = self.ranks
        return 0.0 if n == 1 else (n - 1) / n * size / self._rate + (n - 1) * self._latency

    def all_reduce(self, size: float) -> float:
        """Seconds until every rank has the sum of everyone's `size` bytes."""
        n = self.ranks
        return 0.0 if n == 1 else 2 * (n - 1) / n * size / self._rate + 2 * math.log2(n) * self._latency

    def all_to_all(self, size: float) -> float:
        """Seconds until every rank has its parts of everyone's `size` bytes. Each member of a node sends through its own
        card, so lanes are not shared as in a ring."""
        n = self.ranks
        if n == 1:
            return 0.0
        here = self.network.members(n, self.stride)
        link = self.network.inside if here == n else self.network.between
        leaving = (n - 1) / n if here == n else (n - here) / n
        return leaving * size / link.rate + (n - 1) * self._latency

    def send(self, size: float) -> float:
        """Seconds until the neighbor has `size` bytes."""
        if self.ranks == 1:
            return 0.0
        inside = self.network.members(self.ranks, self.stride) == self.ranks
        link = self.network.inside if inside else self.network.between
        return size / link.rate + link.latency
