"""Block maps: which tiles of the score matrix a kernel has to visit, computed from intervals, not from a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from ...core.layout import Layout
from ..patterns.basic import Interval, Pattern


@dataclass(frozen=True, eq=False)
class BlockMap:
    """For each tile: whether any pair may be allowed, and whether every pair is allowed, so no mask is needed."""

    maybe: Bool[Tensor, "rows cols"]
    surely: Bool[Tensor, "rows cols"]

    def columns(self, row: int) -> list[int]:
        """The key blocks that a query block has to visit."""
        return self.maybe[row].nonzero()[:, 0].tolist()


class BlockBounds(NamedTuple):
    """Blocks of queries, or of keys: their bounds, whether some, and whether all, tokens of each are real."""

    interval: Interval
    some: Tensor
    every: Tensor

    def at(self, index: Tensor | tuple[slice | None, ...]) -> BlockBounds:
        """The blocks at an index; None adds an axis."""
        return BlockBounds(
            Interval(*(torch.as_tensor(t)[index] for t in self.interval)), self.some[index], self.every[index]
        )


def block_map(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int) -> BlockMap:
    """Tiles of rows × cols over all batch rows together; conservative if rows of the batch differ."""
    q, k = block_bounds(layout, rows), block_bounds(kv_layout, cols)
    maybe, surely = decide(pattern, q.at((slice(None), None)), k)
    n = len(q.some), len(k.some)
    return BlockMap(maybe.expand(n), surely.expand(n))


def decide(pattern: Pattern, q: BlockBounds, k: BlockBounds) -> tuple[Tensor, Tensor]:
    """(maybe, surely) for blocks of queries against blocks of keys, which broadcast: pattern, segments and padding."""
    (some, q_all), (k_some, k_all) = q[1:], k[1:]
    maybe, surely = (torch.as_tensor(x).cpu() for x in pattern.block(q.interval, k.interval))
    (q_low, q_high), (k_low, k_high) = q.interval[2:4], k.interval[2:4]
    maybe = maybe & (q_low <= k_high) & (k_low <= q_high) & some & k_some
    return maybe, surely & maybe & (q_low == k_low) & (q_high == k_high) & (q_low == q_high) & q_all & k_all


def block_bounds(layout: Layout, size: int) -> BlockBounds:
    """The blocks of `size` tokens, over all batch rows together, bounded over real tokens."""
    position = layout.positions[..., 0].cpu()
    valid = position >= 0
    segment = None if layout.segments is None else layout.segments.cpu()
    role = None if layout.roles is None else layout.roles.cpu()
    blocks = range(0, position.shape[1], size)
    far = torch.iinfo(torch.int64).max

    def low(x: Tensor | None) -> Tensor:
        return _reduce(blocks, size, None if x is None else x.masked_fill(~valid, far), "amin")

    def high(x: Tensor | None) -> Tensor:
        return _reduce(blocks, size, None if x is None else x.masked_fill(~valid, -1), "amax")

    roles = (_bits(role, valid, blocks, size, how) for how in ("amax", "amin"))
    some, every = (_reduce(blocks, size, valid.long(), how) > 0 for how in ("amax", "amin"))
    return BlockBounds(Interval(low(position), high(position), low(segment), high(segment), *roles), some, every)


def _reduce(blocks: range, size: int, x: Tensor | None, how: str) -> Tensor:
    """Reduce each block of columns, over all rows, to one number."""
    if x is None:
        return torch.zeros(len(blocks), dtype=torch.int64)
    end = x.shape[1] // size * size  # of the complete blocks
    parts = [getattr(x[:, :end].reshape(x.shape[0], -1, size), how)((0, 2))]
    if end < x.shape[1]:
        parts.append(getattr(x[:, end:], how)().reshape(1))
    return torch.cat(parts)


def _bits(role: Tensor | None, valid: Tensor, blocks: range, size: int, how: str) -> Tensor:
    """The role bits that any ("amax"), or all ("amin"), real tokens of each block have."""
    out = torch.zeros(len(blocks), dtype=torch.int64)
    if role is None:
        return out
    for bit in range(int(role.max()).bit_length()):
        flag = ((role >> bit) & 1).masked_fill(~valid, how == "amin")
        out |= _reduce(blocks, size, flag, how) << bit
    return out
