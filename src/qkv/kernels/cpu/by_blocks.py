"""Patterns that leave out much, by our own kernels: what plans their blocks, and what calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...core.layout import Layout
from ...patterns.basic import Pattern
from ..native import sparse
from ..native.sparse import SIDE, UNIT, BlockPlan
from .block_sparse import taken
from .regrouped import groupings
from .remembered import Remembered
from .strips import visits
from .tiles import layouts_of

_MOST = 2048  # blocks in which pairs are hidden in a way of their own: 32 MiB
_AT_ONCE = 256  # blocks that are looked into together


Plans = tuple[BlockPlan, ...]  # which together are the rule


@dataclass
class ByBlocks:
    """As `BlockSparse`, but for None where a key or value that is met is NaN or infinite. `rows` are the plans of each row
    of the batch, or those of all."""

    q: Tensor
    k: Tensor
    v: Tensor
    rows: tuple[Plans, ...]
    scale: float
    slopes: Tensor | None = None

    def forward(self) -> tuple[Tensor, Tensor] | None:
        found = _whole(
            sparse.forward(self.q[at], self.k[at], self.v[at], plans, self.scale, self.slopes)
            for at, plans in self._by_row()
        )
        return found if found is None else (found[0].to(self.q.dtype), found[1])

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None) -> tuple[Tensor, ...] | None:
        def of(at: slice, plans: Plans) -> tuple[Tensor, ...] | None:
            given = self.q[at], self.k[at], self.v[at], out[at], lse[at], d_out[at]
            return sparse.backward(*given, None if d_lse is None else d_lse[at], plans, self.scale, self.slopes)

        return _whole(of(*one) for one in self._by_row())

    def _by_row(self) -> Iterator[tuple[slice, Plans]]:
        if len(self.rows) == 1:
            yield slice(None), self.rows[0]
            return
        for b, plans in enumerate(self.rows):
            yield slice(b, b + 1), plans


def _whole(each: Iterable[tuple[Tensor, ...] | None]) -> tuple[Tensor, ...] | None:
    """Parts of a batch as one; None where one of them is."""
    made: list[tuple[Tensor, ...]] = []
    for part in each:
        if part is None:
            return None
        made.append(part)
    return made[0] if len(made) == 1 else tuple(torch.cat(parts) for parts in zip(*made, strict=True))


def share(rows: tuple[Plans, ...], t: int, s: int) -> float:
    """Of all scores, those that are computed."""
    return sum(len(plan.block) for plans in rows for plan in plans) * SIDE**2 / (len(rows) * t * s)


@lru_cache(maxsize=64)
def plain(pattern: Pattern, t: int, s: int, q_start: int, k_start: int) -> BlockPlan | None:
    """`plan` for unpadded tokens of one segment at consecutive positions, remembered."""
    return plan(pattern, Layout.full(t, q_start, "cpu"), Layout.full(s, k_start, "cpu"))


@lru_cache(maxsize=64)
def regrouped(pattern: Pattern, n: int) -> tuple[BlockPlan, ...] | None:
    """For patterns with gaps, part by part, see `groupings`; None where a part has no plan."""
    found = [plan(x.pattern, x.layout, x.layout, x.order) for x in groupings(pattern, n, SIDE)]
    made = tuple(x for x in found if x is not None)
    return made if len(made) == len(found) else None


_remembered: Remembered[tuple[Plans, ...] | None] = Remembered()


def by_row(pattern: Pattern, positions: list[Tensor], marks: list[Tensor | None]) -> tuple[Plans, ...] | None:
    """`plan` for each row of a batch whose layouts differ, or for its only one, remembered."""
    return _remembered.of(pattern, [*positions, *marks], lambda: _by_row(pattern, positions, marks))


def _by_row(pattern: Pattern, positions: list[Tensor], marks: list[Tensor | None]) -> tuple[Plans, ...] | None:
    rows = max(x.shape[0] for x in (*positions, *marks) if x is not None)
    made = [plan(pattern, *layouts_of(*_row(positions, marks, b))) for b in range(rows)]
    whole = tuple((one,) for one in made if one is not None)
    return whole if len(whole) == rows else None


def _row(positions: list[Tensor], marks: list[Tensor | None], b: int) -> tuple[list[Tensor], list[Tensor | None]]:
    def of(x: Tensor) -> Tensor:
        return x if len(x) == 1 else x[b : b + 1]

    return [of(x) for x in positions], [None if x is None else of(x) for x in marks]


def plan(pattern: Pattern, layout: Layout, kv_layout: Layout, order: Tensor | None = None) -> BlockPlan | None:
    """The blocks that may hold an allowed pair, for layouts that are the same for all rows, and what is hidden in them.

    None where that is too much to keep.
    """
    i, j, sure = visits(pattern, layout, kv_layout, SIDE, SIDE)
    some = (~sure).nonzero()[:, 0]
    pieces = [_hidden(pattern, layout, kv_layout, i[at], j[at]) for at in some.split(_AT_ONCE)]
    bits = np.concatenate(pieces) if len(some) else np.zeros((0, SIDE * SIDE // 8), np.uint8)
    kinds, which = np.unique(bits.view(np.dtype((np.void, bits.shape[1])))[:, 0], return_inverse=True)
    if len(kinds) > _MOST:
        return None
    table = torch.full_like(i, -1)
    table[some] = torch.from_numpy(which.reshape(-1)).to(table.dtype)
    hidden = np.unpackbits(kinds.view(np.uint8).reshape(len(kinds), bits.shape[1]), axis=1)
    limits = torch.from_numpy(np.where(hidden, -np.inf, np.inf).astype(np.float32)).view(-1, SIDE, SIDE)
    number, count = i.unique_consecutive(return_counts=True)
    ends = torch.cat([count.new_zeros(1), count.cumsum(0)])
    # In another order positions are those within a part; tokens stand in the text as they are numbered.
    places = [(x.positions[0] if order is None else order.sort()[0]).float() for x in (layout, kv_layout)]
    return BlockPlan(number, ends, j.contiguous(), table, limits, _spans(limits), places[0], places[1], order)


def _spans(limits: Tensor) -> Tensor:
    """Of (tables, keys, queries): from which query and up to which, by sixteens, each sixteen keys are seen by some."""
    n = SIDE // UNIT
    seen, step = (limits > 0).view(-1, n, UNIT, n, UNIT).any(4).any(2), torch.arange(n, device="cpu")
    return torch.stack([torch.where(seen, step, n).amin(2), torch.where(seen, step + 1, 0).amax(2)], 2) * UNIT


def _hidden(pattern: Pattern, layout: Layout, kv_layout: Layout, i: Tensor, j: Tensor) -> np.ndarray:
    """Of blocks (i, j) the pairs that are forbidden, key by key, eight to a byte: (blocks, 64 · 64 / 8)."""
    step = torch.arange(SIDE, device="cpu")
    rows, columns = (x[:, None] * SIDE + step for x in (i, j))
    q, k = (taken(x, at.clamp(max=x.shape[1] - 1)) for x, at in ((layout, rows), (kv_layout, columns)))
    a, b = q.queries(), k.keys()
    allowed = pattern.allowed(a, b) & (a.segment == b.segment) & (a.position >= 0) & (b.position >= 0)
    return np.packbits(~allowed.expand(len(i), SIDE, SIDE).mT.flatten(1).numpy(), axis=1)
