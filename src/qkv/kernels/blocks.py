"""Which tiles of a score matrix a kernel has to touch: from intervals, never from a mask of all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.layout import Layout
from ..patterns.basic import Interval, Pattern


@dataclass(frozen=True)
class Blocks:
    """For each tile: may some pair be allowed, and is every pair surely allowed (so that it needs no mask)?"""

    maybe: list[list[bool]]
    surely: list[list[bool]]

    @property
    def n_cols(self) -> int:
        return len(self.maybe[0]) if self.maybe else 0

    def columns(self, row: int) -> list[int]:
        """The key blocks that a query block has to visit."""
        return [j for j, flag in enumerate(self.maybe[row]) if flag]


class Side(NamedTuple):
    """Blocks of queries, or of keys: their bounds, whether each has a real token, and whether it has no other."""

    interval: Interval
    some: Tensor
    every: Tensor

    def at(self, index: Any) -> Side:
        """The blocks that an index takes; None makes an axis."""
        return Side(Interval(*(t[index] for t in self.interval)), self.some[index], self.every[index])


def block_map(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int) -> Blocks:
    """Tiles of rows × cols over all batch rows together; conservative where rows of the batch differ."""
    maybe, surely = verdict(pattern, side(layout, rows).at((slice(None), None)), side(kv_layout, cols))
    return Blocks(maybe.tolist(), surely.tolist())


def verdict(pattern: Pattern, q: Side, k: Side) -> tuple[Tensor, Tensor]:
    """(maybe, surely) for blocks of queries against blocks of keys, which broadcast: pattern, segments and padding."""
    (some, q_all), (k_some, k_all) = q[1:], k[1:]
    maybe, surely = (torch.as_tensor(x).cpu() for x in pattern.block(q.interval, k.interval))
    (q_low, q_high), (k_low, k_high) = q.interval[2:4], k.interval[2:4]
    maybe = maybe & (q_low <= k_high) & (k_low <= q_high) & some & k_some
    return maybe, surely & maybe & (q_low == k_low) & (q_high == k_high) & (q_low == q_high) & q_all & k_all


def side(layout: Layout, size: int) -> Side:
    """The blocks of `size` tokens, over all batch rows together, bounded over real tokens."""
    position = layout.positions[..., 0].cpu()
    valid = position >= 0
    segment = None if layout.segments is None else layout.segments.cpu()
    role = None if layout.roles is None else layout.roles.cpu()
    blocks = range(0, position.shape[1], size)
    far = torch.iinfo(torch.int64).max

    def low(x: Tensor | None) -> Tensor:
        return _each(blocks, size, None if x is None else x.masked_fill(~valid, far), "amin")

    def high(x: Tensor | None) -> Tensor:
        return _each(blocks, size, None if x is None else x.masked_fill(~valid, -1), "amax")

    bits = [0, 0] if role is None else [_bits(role, valid, blocks, size, want) for want in (any, all)]
    zeros = torch.zeros(len(blocks), dtype=torch.int64)
    any_role, all_role = (zeros if isinstance(b, int) else b for b in bits)
    some, every = (_each(blocks, size, valid.long(), how) > 0 for how in ("amax", "amin"))
    return Side(Interval(low(position), high(position), low(segment), high(segment), any_role, all_role), some, every)


def _each(blocks: range, size: int, x: Tensor | None, how: str) -> Tensor:
    """One number for each block of columns, over all rows."""
    if x is None:
        return torch.zeros(len(blocks), dtype=torch.int64)
    whole = x.shape[1] // size * size
    found = [getattr(x[:, :whole].reshape(x.shape[0], -1, size), how)((0, 2))]
    if whole < x.shape[1]:
        found.append(getattr(x[:, whole:], how)().reshape(1))
    return torch.cat(found)


def _bits(role: Tensor, valid: Tensor, blocks: range, size: int, want: object) -> Tensor:
    """The role bits that any, or all, of the real tokens of each block have."""
    out = torch.zeros(len(blocks), dtype=torch.int64)
    for bit in range(int(role.max()).bit_length()):
        flag = (role >> bit) & 1
        if want is any:
            found = _each(blocks, size, flag.masked_fill(~valid, 0), "amax")
        else:
            found = _each(blocks, size, flag.masked_fill(~valid, 1), "amin")
        out |= found << bit
    return out
