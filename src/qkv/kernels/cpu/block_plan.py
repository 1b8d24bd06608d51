"""Block plans: which blocks of 64 × 64 scores the C++ kernels compute for a pattern, and which pairs they hide in them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...core.layout import Layout
from ...patterns.basic import Pattern
from ..block_map import block_bounds, decide
from ..native.block_sparse import SIDE, UNIT, BlockPlan
from .identity_cache import IdentityCache

_MAX_MASKS = 2048  # different masks within blocks: 32 MiB
_CHUNK = 256  # blocks whose masks are computed together
_COARSE = 16  # blocks on the side of a square that is decided before the blocks in it

Value = TypeVar("Value")
Plans = tuple[BlockPlan, ...]  # which together are the rule


class Tokens(NamedTuple):
    """Where queries and keys stand: positions of both; segments of both, then roles of both; their first positions where
    the host knows that nothing else matters, else −1."""

    positions: list[Tensor]
    marks: list[Tensor | None]
    q_start: int
    k_start: int

    @property
    def known(self) -> bool:
        return min(self.q_start, self.k_start) >= 0

    @property
    def alike(self) -> bool:
        """Whether the layouts are the same for all rows of the batch."""
        return all(x is None or x.shape[0] == 1 for x in (*self.positions, *self.marks))

    def layouts(self) -> tuple[Layout, Layout]:
        """Of queries and of keys."""
        marks = self.marks
        q, k = (Layout(x, marks[i], marks[i + 2], one_segment=marks[i] is None) for i, x in enumerate(self.positions))
        return q, k

    def row(self, b: int) -> Tokens:
        """Those of one row of the batch."""
        positions, marks = ([None if x is None else x if len(x) == 1 else x[b : b + 1] for x in xs] for xs in self[:2])
        return Tokens([x for x in positions if x is not None], marks, self.q_start, self.k_start)


_by_row: IdentityCache[tuple[Plans, ...] | None] = IdentityCache()


def plans(pattern: Pattern, tokens: Tokens) -> tuple[Plans, ...] | None:
    """The plans of each row of the batch, or those of all, cached. None where they are too large to keep."""
    if tokens.known and tokens.alike:
        t, s = (x.shape[1] for x in tokens.positions)
        shared = consecutive(pattern, t, s, tokens.q_start, tokens.k_start)
        return None if shared is None else (shared,)

    def compute() -> tuple[Plans, ...] | None:
        rows = max(x.shape[0] for x in (*tokens.positions, *tokens.marks) if x is not None)
        return _unless_none([_unless_none([plan(pattern, *tokens.row(b).layouts())]) for b in range(rows)])

    return _by_row.get(pattern, [*tokens.positions, *tokens.marks], compute)


@lru_cache(maxsize=64)
def consecutive(pattern: Pattern, t: int, s: int, q_start: int, k_start: int) -> Plans | None:
    """Plans for unpadded tokens of one segment at consecutive positions.

    A rule with gaps, as dilated windows have, is planned part by part, over tokens in an order in which it has none:
    positions with one residue mod d stand side by side, as a segment of their own.
    """
    parts = pattern.regroup() if t == s and q_start == k_start else None
    if not parts:
        return _unless_none([plan(pattern, Layout.full(t, q_start, "cpu"), Layout.full(s, k_start, "cpu"))])
    return _unless_none([_regrouped(rule, t, d) for d, rule in parts])


def _regrouped(pattern: Pattern, n: int, d: int) -> BlockPlan | None:
    if d == 1:
        layout = Layout.full(n, device="cpu")
        return plan(pattern, layout, layout)
    order = torch.cat([torch.arange(residue, n, d, device="cpu") for residue in range(min(d, n))])
    layout = Layout((order // d)[None], (order % d)[None], padding="none", one_segment=False)
    return plan(pattern, layout, layout, order)


def _unless_none(parts: list[Value | None]) -> tuple[Value, ...] | None:
    present = tuple(part for part in parts if part is not None)
    return present if len(present) == len(parts) else None


def n_scores(plans: Plans) -> int:
    """How many scores a head computes, edges of the matrix cut off."""
    total = 0
    for x in plans:
        rows = (len(x.places) - x.number * SIDE).clamp(max=SIDE).repeat_interleave(x.ends.diff())
        total += int((rows * (len(x.kv_places) - x.block * SIDE).clamp(max=SIDE)).sum())
    return total


def share(rows: tuple[Plans, ...], t: int, s: int) -> float:
    """The share of all scores that is computed, whole blocks counted."""
    return sum(len(plan.block) for plans in rows for plan in plans) * SIDE**2 / (len(rows) * t * s)


def plan(pattern: Pattern, layout: Layout, kv_layout: Layout, order: Tensor | None = None) -> BlockPlan | None:
    """The blocks that may hold an allowed pair, for layouts that are the same for all rows, and what is hidden in them.

    None where that is too much to keep.
    """
    i, j, sure = visited_blocks(pattern, layout, kv_layout, SIDE, SIDE)
    some = (~sure).nonzero()[:, 0]
    pieces = [_hidden(pattern, layout, kv_layout, i[at], j[at]) for at in some.split(_CHUNK)]
    bits = np.concatenate(pieces) if len(some) else np.zeros((0, SIDE * SIDE // 8), np.uint8)
    kinds, which = np.unique(bits.view(np.dtype((np.void, bits.shape[1])))[:, 0], return_inverse=True)
    if len(kinds) > _MAX_MASKS:
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


def visited_blocks(
    pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and whether all its pairs are surely allowed, of every block that may hold an allowed pair, sorted.

    Squares of 16 × 16 blocks are decided first, and only blocks in those that may have a pair after them: time grows with
    the pairs that are allowed, not with all.
    """
    sides = block_bounds(layout, rows), block_bounds(kv_layout, cols)
    coarse = block_bounds(layout, rows * _COARSE), block_bounds(kv_layout, cols * _COARSE)
    square = decide(pattern, coarse[0].at((slice(None), None)), coarse[1])[0].nonzero() * _COARSE
    step = torch.arange(_COARSE, device="cpu")
    i = (square[:, 0, None, None] + step[:, None]).expand(-1, -1, _COARSE).flatten()
    j = (square[:, 1, None, None] + step).expand(-1, _COARSE, -1).flatten()
    inside = (i < len(sides[0].some)) & (j < len(sides[1].some))
    i, j = i[inside], j[inside]
    maybe, surely = (x.expand(i.shape) for x in decide(pattern, sides[0].at(i), sides[1].at(j)))
    i, j, surely = i[maybe], j[maybe], surely[maybe]
    order = (i * len(sides[1].some) + j).argsort()
    return i[order], j[order], surely[order]


def _spans(limits: Tensor) -> Tensor:
    """Of (tables, keys, queries): from which query and up to which, by sixteens, each sixteen keys are seen by some."""
    n = SIDE // UNIT
    seen, step = (limits > 0).view(-1, n, UNIT, n, UNIT).any(4).any(2), torch.arange(n, device="cpu")
    return torch.stack([torch.where(seen, step, n).amin(2), torch.where(seen, step + 1, 0).amax(2)], 2) * UNIT


def _hidden(pattern: Pattern, layout: Layout, kv_layout: Layout, i: Tensor, j: Tensor) -> np.ndarray:
    """Of blocks (i, j) the pairs that are forbidden, key by key, eight to a byte: (blocks, 64 · 64 / 8)."""
    step = torch.arange(SIDE, device="cpu")
    rows, columns = (x[:, None] * SIDE + step for x in (i, j))
    q, k = (_take(x, at.clamp(max=x.shape[1] - 1)) for x, at in ((layout, rows), (kv_layout, columns)))
    a, b = q.queries(), k.keys()
    allowed = pattern.allowed(a, b) & (a.segment == b.segment) & (a.position >= 0) & (b.position >= 0)
    return np.packbits(~allowed.expand(len(i), SIDE, SIDE).mT.flatten(1).numpy(), axis=1)


def _take(layout: Layout, index: Tensor) -> Layout:
    """The tokens (n, rows) of a layout's only row, as n rows."""
    segments, roles = (None if x is None else x[0][index] for x in (layout.segments, layout.roles))
    return Layout(layout.positions[0][index], segments, roles)
