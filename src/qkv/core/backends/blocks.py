"""Which tiles of a score matrix a kernel has to touch: from intervals, never from a mask of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..layout import Layout
from ..patterns import Extent, Pattern


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


def block_map(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int) -> Blocks:
    """Tiles of rows × cols over all batch rows together; conservative where rows of the batch differ."""
    q, q_some, q_all = _extents(layout, rows)
    k, k_some, k_all = _extents(kv_layout, cols)
    q = Extent(*(t[:, None] for t in q))
    maybe, surely = (_grid(x, len(q_some), len(k_some)) for x in pattern.block(q, k))
    same = (q.segment_low == k.segment_low) & (q.segment_high == k.segment_high) & (q.segment_low == q.segment_high)
    touch = (q.segment_low <= k.segment_high) & (k.segment_low <= q.segment_high)
    maybe = maybe & touch & q_some[:, None] & k_some
    surely = surely & same & q_all[:, None] & k_all & maybe
    return Blocks(maybe.tolist(), surely.tolist())


def _grid(x: Tensor | bool, rows: int, cols: int) -> Tensor:
    return torch.as_tensor(x).cpu().expand(rows, cols)


def _extents(layout: Layout, size: int) -> tuple[Extent, Tensor, Tensor]:
    """Bounds of each block of `size` tokens over real tokens, whether it has any, and whether all of them are."""
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
    return Extent(low(position), high(position), low(segment), high(segment), any_role, all_role), some, every


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
