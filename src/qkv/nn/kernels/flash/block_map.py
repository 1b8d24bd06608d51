"""The block map of the flash kernels: which tiles of the score matrix they visit, and the masks within tiles.

For every tile of queries it lists the tiles of keys that may hold an allowed pair, and the other way round: first full
tiles, which need no mask, then partial ones. In partial tiles a kernel computes the mask from positions and segments;
if the pattern is not a union of boxes, these tiles have a stored mask of one bit a pair. A mask of all pairs is never
made.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....core.graphs import constant, operator
from ....core.layout import Layout
from ...patterns.basic import Interval, Pattern
from ..plan import allowed_by_head
from .boxes import boxes

FULL, PARTIAL, EMPTY = 0, 1, 2
_FAR = 1 << 40  # beyond any position, and far from overflow in a pattern's arithmetic
_AT_ONCE = 1024  # tiles whose masks are computed together


class Tiles(NamedTuple):
    """Tensors on the device, for R rows of the batch, or R = 1 if all are equal; n_q × n_k tiles of M × N pairs."""

    q_place: Tensor  # (R, n_q · M) int32 positions; −1 for padding and beyond the end
    k_place: Tensor  # (R, n_k · N)
    q_segment: Tensor  # int64, the same shapes; one number if there are no segments
    k_segment: Tensor
    columns: Tensor  # (R, n_q, n_k) int32: the tiles of keys to visit, full ones first
    column_counts: Tensor  # (R, n_q, 2) int32: how many of them are full, and how many there are
    rows: Tensor  # (R, n_k, n_q) int32: the tiles of queries to visit
    row_counts: Tensor  # (R, n_k, 2) int32
    kind: Tensor  # (R, n_q, n_k) int32: −1 for empty tiles, 0 for full ones, else the partial tile's number, from 1
    rule: Tensor  # (n, 6) int32 boxes, or (partial tiles, H or 1, M) int64 masks, one bit for each of up to 64 keys


@lru_cache(maxsize=256)
def _pattern(text: str) -> Pattern:
    return Pattern.from_json(text)


@constant
def n_boxes(pattern: str) -> int:
    """How many boxes a pattern (in JSON) consists of; −1 if it needs masks."""
    union = boxes(_pattern(pattern))
    return -1 if union is None else len(union)


@operator("flash_tiles")
def make(
    positions: list[Tensor],
    segments: list[Tensor],
    roles: list[Tensor],
    pattern: str,
    n_heads: int,
    rows: int,
    cols: int,
    device: torch.device,
) -> list[Tensor]:
    """The fields of `Tiles`, from the positions (R, T, A) of queries and keys, and their segments and roles, if any.

    Tiles are classified on the host: for positions that are there already, nothing waits for the device.
    """
    rule = _pattern(pattern)
    sides = [_Side(i, size, positions, segments, roles) for i, size in enumerate((rows, cols))]
    state = _classify(rule, *sides)
    partial = state == PARTIAL
    kind = torch.where(partial, partial.flatten().cumsum(0).view(partial.shape), -(state == EMPTY).long())
    state = state.to(device, non_blocking=True)
    places = [side.positions[..., 0].to(device, torch.int32).contiguous() for side in sides]
    marks = [side.positions.new_zeros(1) if side.segments is None else side.segments for side in sides]
    union = boxes(rule)
    if union is None:
        q_side, k_side = (side.to(device) for side in sides)
        decided = _masks(rule, q_side, k_side, partial.nonzero().to(device), n_heads)
    else:
        decided = torch.tensor(union or ((0,) * 6,), dtype=torch.int32).to(device, non_blocking=True)
    kind = kind.to(device, torch.int32, non_blocking=True)
    segment_tensors = (mark.to(device).contiguous() for mark in marks)
    return [*places, *segment_tensors, *_lists(state), *_lists(state.mT), kind, decided]


@make.register_fake
def _(*inputs: Any) -> list[Tensor]:
    positions, segments, _, pattern, n_heads, rows, cols, device = inputs
    rule = _pattern(pattern)
    r = max(x.shape[0] for x in positions)
    n_q, n_k = (-(-x.shape[1] // size) for x, size in zip(positions, (rows, cols), strict=True))

    def new(*shape: Any, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    union = boxes(rule)
    if union is None:
        partial = torch.library.get_ctx().new_dynamic_size()
        decided = new(partial, n_heads if rule.per_head else 1, rows, dtype=torch.int64)
    else:
        decided = new(max(len(union), 1), 6)
    widths = n_q * rows, n_k * cols
    marks = [new(r, n, dtype=torch.int64) if segments else new(1, dtype=torch.int64) for n in widths]
    lists = [new(r, n_q, n_k), new(r, n_q, 2), new(r, n_k, n_q), new(r, n_k, 2)]
    return [*(new(r, n) for n in widths), *marks, *lists, new(r, n_q, n_k), decided]


class _Side:
    """Queries (side 0) or keys (side 1) of all rows, padded to whole tiles of `size` tokens."""

    def __init__(
        self, number: int, size: int, positions: list[Tensor], segments: list[Tensor], roles: list[Tensor]
    ) -> None:
        self.size, n_rows = size, max(x.shape[0] for x in positions)

        def fill(sides: list[Tensor], value: int) -> Tensor:
            x = sides[number].expand(n_rows, *sides[number].shape[1:])
            return torch.cat((x, x.new_full((n_rows, -x.shape[1] % size, *x.shape[2:]), value)), 1)

        self.positions = fill(positions, -1)
        self.segments = fill(segments, -1) if segments else None
        self.roles = fill(roles, 0) if roles else None

    def to(self, device: torch.device) -> _Side:
        self.positions = self.positions.to(device)
        return self

    def tiles(self, x: Tensor) -> Tensor:
        """(R, n · size, …) → (R, n, size, …)."""
        return x.unflatten(1, (-1, self.size))

    def intervals(self) -> tuple[Interval, Tensor, Tensor]:
        """Bounds (R, n) of each tile over its real tokens, whether it has any, and whether all of them are; on the host."""
        position = self.tiles(self.positions[..., 0])
        valid = position >= 0

        def bounds(x: Tensor | None) -> list[Tensor]:
            x = torch.zeros_like(position) if x is None else x
            return [x.masked_fill(~valid, _FAR).amin(2), x.masked_fill(~valid, -1).amax(2)]

        marks = [None if x is None else self.tiles(x) for x in (self.segments, self.roles)]
        bits = [torch.zeros_like(position[..., 0])] * 2 if marks[1] is None else _bits(marks[1], valid)
        fields = torch.stack([*bounds(position), *bounds(marks[0]), *bits, valid.any(2), valid.all(2)]).cpu()
        return Interval(*fields[:6]), fields[6].bool(), fields[7].bool()

    def of_tiles(self, row: Tensor, tile: Tensor) -> Layout:
        """The tokens of n tiles, (n, size), as a layout."""
        positions, segments, roles = (
            None if x is None else self.tiles(x)[row, tile] for x in (self.positions, self.segments, self.roles)
        )
        assert positions is not None
        return Layout(positions, segments, roles)


def _bits(roles: Tensor, valid: Tensor) -> list[Tensor]:
    """The role bits that some, and that all, real tokens of each tile have."""
    some = every = torch.zeros_like(roles[..., 0])
    for bit in range(int(roles.max()).bit_length()):
        has = (roles >> bit & 1) != 0
        some = some | (has & valid).any(2).long() << bit
        every = every | (has | ~valid).all(2).long() << bit
    return [some, every]


def _classify(pattern: Pattern, q_side: _Side, k_side: _Side) -> Tensor:
    """(R, n_q, n_k) int8: FULL, PARTIAL or EMPTY, by the pattern's block mask, segments and padding."""
    (q, q_some, q_all), (k, k_some, k_all) = q_side.intervals(), k_side.intervals()
    q = Interval(*(torch.as_tensor(x).unsqueeze(2) for x in q))
    k = Interval(*(torch.as_tensor(x).unsqueeze(1) for x in k))
    maybe, surely = (torch.as_tensor(x).cpu() for x in pattern.block(q, k))
    touch = (q.segment_low <= k.segment_high) & (k.segment_low <= q.segment_high)
    same = (q.segment_low == q.segment_high) & (k.segment_low == k.segment_high) & (q.segment_low == k.segment_low)
    maybe = maybe & touch & q_some.unsqueeze(2) & k_some.unsqueeze(1)
    surely = surely & same & q_all.unsqueeze(2) & k_all.unsqueeze(1)
    return torch.where(maybe, torch.where(surely, FULL, PARTIAL), EMPTY).to(torch.int8)


def _lists(state: Tensor) -> tuple[Tensor, Tensor]:
    """The tiles of the last axis, full ones first, then partial ones; how many are full, and how many are either."""
    order = state.argsort(dim=-1, stable=True).to(torch.int32)
    counts = torch.stack(((state == FULL).sum(-1), (state != EMPTY).sum(-1)), -1)
    return order.contiguous(), counts.to(torch.int32)


def _masks(pattern: Pattern, q_side: _Side, k_side: _Side, partial: Tensor, n_heads: int) -> Tensor:
    """(n, H or 1, M) int64: a word for each partial tile (row, i, j) and query, with bit c set where key c is allowed."""
    m, n = q_side.size, k_side.size
    heads = n_heads if pattern.per_head else 1
    weights = torch.ones((), dtype=torch.int64, device=partial.device) << torch.arange(n, device=partial.device)
    words = weights.new_zeros(max(len(partial), 1), heads, m)
    for first in range(0, len(partial), _AT_ONCE):
        row, i, j = partial[first : first + _AT_ONCE].unbind(1)
        q, k = q_side.of_tiles(row, i).queries(), k_side.of_tiles(row, j).keys()
        allowed = allowed_by_head(pattern, q, k, n_heads).expand(len(row), heads, m, n)
        words[first : first + len(row)] = torch.where(allowed, weights, 0).sum(-1)
    return words
