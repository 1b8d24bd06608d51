"""Block plans: which blocks of 64 × 64 scores the C++ kernels compute for a pattern, and which pairs they mask in them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ....core.layout import Layout
from ...patterns.basic import Pattern
from ..block_map import block_bounds, decide
from ..native.block_sparse import SIDE, UNIT, BlockPlan
from .identity_cache import IdentityCache

_MAX_MASKS = 2048  # different masks of blocks: 32 MiB
_CHUNK = 256  # blocks whose masks are computed together
_COARSE = 16  # blocks on the side of a square that is tested before the blocks in it

Value = TypeVar("Value")
Plans = tuple[BlockPlan, ...]  # disjoint parts of one rule


class OperatorLayouts(NamedTuple):
    """The layouts of queries and keys, as an operator takes them.

    positions: of both. marks: segments of both, then roles of both. starts: the first position of both if the tokens
               are unpadded, of one segment, and at consecutive positions, as far as the host can tell; else −1.
    lengths:   the number of keys of each row, if rows differ in that alone: positions and marks are then those of rows
               without padding, and outputs of padded queries mean nothing.
    """

    positions: list[Tensor]
    marks: list[Tensor | None]
    starts: list[int]
    lengths: Tensor | None = None

    @property
    def known(self) -> bool:
        """Whether both first positions are known."""
        return min(self.starts) >= 0

    @property
    def aligned(self) -> bool:
        """Whether queries and keys are known to be the same tokens."""
        return (
            self.known and self.starts[0] == self.starts[1] and self.positions[0].shape[1] == self.positions[1].shape[1]
        )

    @property
    def alike(self) -> bool:
        """Whether the layouts are the same for all rows of the batch."""
        return {x.shape[0] for x in (*self.positions, *self.marks) if x is not None} == {1}

    def layouts(self) -> tuple[Layout, Layout]:
        """The layouts of queries and of keys."""
        marks, positions = self.marks, self.positions
        if self.lengths is not None:
            padded = torch.arange(positions[1].shape[1], device=self.lengths.device) >= self.lengths[:, None]
            positions = [positions[0], positions[1].masked_fill(padded[..., None], -1)]
        q, k = (Layout(x, marks[i], marks[i + 2], one_segment=marks[i] is None) for i, x in enumerate(positions))
        return q, k

    def row(self, b: int) -> OperatorLayouts:
        """The tokens of one row of the batch."""
        positions, marks = ([None if x is None else x if len(x) == 1 else x[b : b + 1] for x in xs] for xs in self[:2])
        return OperatorLayouts([x for x in positions if x is not None], marks, self.starts)


_by_row: IdentityCache[tuple[Plans, ...] | None] = IdentityCache()


def plans(pattern: Pattern, tokens: OperatorLayouts) -> tuple[Plans, ...] | None:
    """The plans of each row of the batch, or one for all rows, cached. None if they are too large to keep."""
    if tokens.known and tokens.alike:
        q, k = tokens.positions
        shared = consecutive(pattern, q.shape[1], k.shape[1], *tokens.starts)
        return None if shared is None else (shared,)

    def compute() -> tuple[Plans, ...] | None:
        rows = max(x.shape[0] for x in (*tokens.positions, *tokens.marks) if x is not None)
        return _unless_none([_unless_none([plan(pattern, *tokens.row(b).layouts())]) for b in range(rows)])

    return _by_row.get(pattern, [*tokens.positions, *tokens.marks], compute)


@lru_cache(maxsize=64)
def consecutive(pattern: Pattern, t: int, s: int, q_start: int, k_start: int) -> Plans | None:
    """Plans for unpadded tokens of one segment at consecutive positions.

    A rule with gaps, such as a dilated window, is planned part by part, over tokens in an order in which it has none.
    """
    parts = pattern.regroup() if t == s and q_start == k_start else None
    if not parts:
        return _unless_none([plan(pattern, Layout.full(t, q_start, "cpu"), Layout.full(s, k_start, "cpu"))])
    places = [(rule, d, *by_residue(t, d)) for d, rule in parts]
    return _unless_none([plan(rule, at, at, None if d == 1 else order) for rule, d, at, order in places])


def by_residue(n: int, d: int) -> tuple[Layout, Tensor]:
    """The layout of n tokens in which positions of one residue mod d stand side by side, as one segment; and their order."""
    order = torch.cat([torch.arange(residue, n, d, device="cpu") for residue in range(min(d, n))])
    if d == 1:
        return Layout.full(n, device="cpu"), order
    return Layout((order // d)[None], (order % d)[None], padding="none", one_segment=False), order


def regrouped(pattern: Pattern, tokens: OperatorLayouts) -> list[tuple[Pattern, Layout, Tensor]]:
    """The parts of a rule with gaps, for tokens in an order without gaps: rule, layout and order; empty for other rules."""
    parts = pattern.regroup() if tokens.aligned and tokens.positions[0].device.type == "cpu" else None
    return [(rule, *by_residue(tokens.positions[0].shape[1], d)) for d, rule in parts or ()]


def _unless_none(parts: list[Value | None]) -> tuple[Value, ...] | None:
    present = tuple(part for part in parts if part is not None)
    return present if len(present) == len(parts) else None


def n_scores(plans: Plans) -> int:
    """How many scores a head computes, without those beyond the edges of the matrix."""
    total = 0
    for x in plans:
        rows = (len(x.places) - x.number * SIDE).clamp(max=SIDE).repeat_interleave(x.ends.diff())
        total += int((rows * (len(x.kv_places) - x.block * SIDE).clamp(max=SIDE)).sum())
    return total


def share(rows: tuple[Plans, ...], t: int, s: int) -> float:
    """The share of all scores that is computed, counting whole blocks."""
    return sum(len(plan.block) for plans in rows for plan in plans) * SIDE**2 / (len(rows) * t * s)


def plan(pattern: Pattern, layout: Layout, kv_layout: Layout, order: Tensor | None = None) -> BlockPlan | None:
    """The blocks that may hold an allowed pair, for layouts that are the same for all rows, and the masks in them.

    None if that is too large to keep.
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
    # With an order, layouts have positions within a part; a token's position in the text is its number.
    places = [(x.positions[0] if order is None else order.sort()[0]).float() for x in (layout, kv_layout)]
    return BlockPlan(number, ends, j.contiguous(), table, limits, _spans(limits), places[0], places[1], order)


def visited_blocks(
    pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Every block that may hold an allowed pair, sorted: its row, its column, and whether all its pairs are surely allowed.

    Squares of 16 × 16 blocks are tested first, then only the blocks in squares that may hold a pair: time grows with the
    allowed pairs, not with all.
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
    """The `spans` of a `BlockPlan`: the first and the end, in steps of 16, of the queries that see any of each 16 keys."""
    n = SIDE // UNIT
    seen, step = (limits > 0).view(-1, n, UNIT, n, UNIT).any(4).any(2), torch.arange(n, device="cpu")
    return torch.stack([torch.where(seen, step, n).amin(2), torch.where(seen, step + 1, 0).amax(2)], 2) * UNIT


def _hidden(pattern: Pattern, layout: Layout, kv_layout: Layout, i: Tensor, j: Tensor) -> np.ndarray:
    """The forbidden pairs of blocks (i, j), key by key, eight to a byte: (blocks, 64 · 64 / 8)."""
    step = torch.arange(SIDE, device="cpu")
    rows, columns = (x[:, None] * SIDE + step for x in (i, j))
    q, k = (_take(x, at.clamp(max=x.shape[1] - 1)) for x, at in ((layout, rows), (kv_layout, columns)))
    a, b = q.queries(), k.keys()
    allowed = pattern.allowed(a, b) & (a.segment == b.segment) & (a.position >= 0) & (b.position >= 0)
    return np.packbits(~allowed.expand(len(i), SIDE, SIDE).mT.flatten(1).numpy(), axis=1)


def _take(layout: Layout, index: Tensor) -> Layout:
    """The tokens of a layout's only row at indices (n, rows), as n rows."""
    segments, roles = (None if x is None else x[0][index] for x in (layout.segments, layout.roles))
    return Layout(layout.positions[0][index], segments, roles)
