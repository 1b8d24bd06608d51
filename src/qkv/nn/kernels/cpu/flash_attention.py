"""FlashAttention in plain PyTorch (Dao et al. 2022): tiles and an online soft-max, forward and backward, for every request.

A row of tiles keeps its largest score so far and the sum of exponentials, and never holds a whole row of weights; the
backward pass recomputes the weights from the log-sum-exp. Tiles that a pattern rules out are never visited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ....core.layout import Layout, View
from ...patterns.basic import Pattern
from ...positions.base import Position
from ..block_map import BlockMap, block_map
from ..native.dropout import DropoutMask, WeightPlaces
from ..plan import allowed_by_head

_SMALL, _MANY_HEADS = 64, 8  # side of a small tile, and how many heads make its products efficient
_LOG2_E = math.log2(math.e)
DENSE = "dense"  # the name of a bias that is a plain tensor


@lru_cache(maxsize=256)
def pattern_of(text: str) -> Pattern:
    return Pattern.from_json(text)


@lru_cache(maxsize=256)
def scheme_of(text: str) -> Position:
    return Position.from_json(text)


@dataclass
class AttentionTile:
    """Queries a … b against keys c … d; `sure` when no pair in it needs a mask."""

    a: int
    b: int
    c: int
    d: int
    sure: bool
    column: int
    number: int


class TiledProblem:
    """What forward and backward share: tensors as (N, rows, width) with N = B·K, tile sizes, and the scores of a tile."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        tensors: list[Tensor],
        q_layout: Layout,
        k_layout: Layout,
        pattern: Pattern,
        bias: str,
        numbers: list[float],
        thinning: tuple[DropoutMask, WeightPlaces] | None = None,
    ) -> None:
        self.batch, self.t, self.h, _ = q.shape
        self.s, self.kv = k.shape[1], k.shape[2]
        self.group = self.h // self.kv
        self.n = self.batch * self.kv
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        self.scale, self.softcap = numbers[:2]
        self.tensors, self.bias, self.thinning = tensors, bias, thinning
        self.pattern, self.q_layout, self.k_layout = pattern, q_layout, k_layout
        self.rows, self.cols, self.blocks = tile_grid(pattern, q_layout, k_layout, self.batch * self.h, q.device.type)
        self.k, self.v, self.bad = self._clean(self.per_kv_head(k), self.per_kv_head(v))
        self.q = q
        self.buffers: dict[str, Tensor] = {}

    def per_kv_head(self, x: Tensor) -> Tensor:
        """(B, S, K, E) → (B·K, S, E)."""
        return x.transpose(1, 2).reshape(self.n, x.shape[1], x.shape[3]).to(self.dtype)

    def queries(self, x: Tensor, a: int, b: int) -> Tensor:
        """Rows a … b of (B, T, H, E) → (B·K, G·rows, E), contiguous for batched products."""
        x = x[:, a:b].to(self.dtype).transpose(1, 2)
        return x.reshape(self.n, self.group * (b - a), x.shape[-1]).contiguous()

    def put(self, into: Tensor, x: Tensor, a: int, b: int) -> None:
        """The inverse of `queries`, into rows a … b of (B, T, H, E)."""
        into[:, a:b].copy_(x.view(self.batch, self.h, b - a, x.shape[-1]).transpose(1, 2))

    def per_key(self, blocks: list[Tensor]) -> Tensor:
        """Blocks of (B·K, cols, E) → (B, S, K, E)."""
        return torch.cat(blocks, 1).view(self.batch, self.kv, self.s, -1).transpose(1, 2)

    def _clean(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Zero keys and values with NaN or Inf, since 0 · NaN is NaN, and mark them, (B, K, S), for `poison`."""
        if finite(k, v):
            return k, v, None
        bad = ~(k.isfinite().all(-1) & v.isfinite().all(-1))
        hidden = bad[..., None]
        return k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0), bad.view(self.batch, self.kv, self.s)

    def tiles(self, a: int, b: int) -> Iterator[AttentionTile]:
        i = a // self.rows
        surely = self.blocks.surely[i].tolist()
        for j in self.blocks.columns(i):
            c = j * self.cols
            yield AttentionTile(a, b, c, min(c + self.cols, self.s), surely[j], j, i * len(surely) + j)

    def row_blocks(self) -> Iterator[tuple[int, int]]:
        for a in range(0, self.t, self.rows):
            yield a, min(a + self.rows, self.t)

    def buffer(self, name: str, rows: int, cols: int) -> Tensor:
        """(N, rows, cols) of memory reused for every tile: fresh pages cost more than the arithmetic."""
        size = self.n * rows * cols
        if name not in self.buffers:
            full = self.n * self.group * min(self.rows, self.t) * min(self.cols, self.s)
            self.buffers[name] = torch.empty(max(size, full), dtype=self.dtype, device=self.q.device)
        return self.buffers[name][:size].view(self.n, rows, cols)

    def views(self, tile: AttentionTile) -> tuple[View, View]:
        return self.q_layout.slice(tile.a, tile.b).queries(), self.k_layout.slice(tile.c, tile.d).keys()

    def by_head(self, x: Tensor, tile: AttentionTile) -> Tensor:
        return x.view(self.batch, self.h, tile.b - tile.a, tile.d - tile.c)

    def mask(self, tile: AttentionTile) -> Tensor | None:
        """Boolean (B or 1, H or 1, rows, cols), or None when every pair is allowed."""
        if tile.sure:
            return None
        q, k = self.views(tile)
        out = allowed_by_head(self.pattern, q, k, self.h)
        return out & ((q.segment == k.segment) & (q.position >= 0) & (k.position >= 0)).unsqueeze(1)

    def scores(self, q: Tensor, tile: AttentionTile) -> tuple[Tensor, Tensor | None]:
        """Masked scores of a tile (N, G·rows, cols), and tanh(scores / softcap) if there is one."""
        s = torch.bmm(q, self.k[:, tile.c : tile.d].mT, out=self.buffer("s", q.shape[1], tile.d - tile.c))
        capped = None
        if self.softcap:
            s.div_(self.softcap).tanh_()
            capped = s.clone()
            s.mul_(self.softcap)
        if self.bias == DENSE:
            self.by_head(s, tile).add_(_cut(self.tensors[0], tile))
        elif self.bias:
            self.by_head(s, tile).add_(scheme_of(self.bias).bias(tuple(self.tensors), *self.views(tile)))
        mask = self.mask(tile)
        if mask is not None:  # several times as fast as filling by the mask
            limit = torch.where(mask, float("inf"), float("-inf")).to(s.dtype)
            torch.minimum(self.by_head(s, tile), limit, out=self.by_head(s, tile))
        return s, capped

    def keep(self, like: Tensor, tile: AttentionTile) -> Tensor:
        """The dropout factors of a tile, 0 or 1/(1 − p): the same in every call."""
        assert self.thinning is not None
        mask, places = self.thinning
        shape = self.batch, self.h, tile.b - tile.a, tile.d - tile.c
        of = places.of_tile(slice(tile.a, tile.b), slice(tile.c, tile.d))
        kept = mask.weights(shape, like.device, (0, tile.a, tile.c), of)
        return (kept.to(like.dtype) * mask.grown).view(like.shape)

    def poison(self, tile: AttentionTile) -> Tensor | None:
        """Rows (B, H, rows) that see a NaN or Inf in this tile."""
        if self.bad is None:
            return None
        bad = self.bad[:, :, tile.c : tile.d].repeat_interleave(self.group, 1)[:, :, None]
        if self.bias == DENSE:
            bad = bad & (_cut(self.tensors[0], tile) != float("-inf"))
        mask = self.mask(tile)
        seen = bad if mask is None else bad & mask
        return seen.any(-1).expand(self.batch, self.h, tile.b - tile.a)


def _exp_(x: Tensor, tile: AttentionTile) -> Tensor:
    """eˣ in place. On CPUs powers of 2 are several times as fast where x is −∞, and somewhat slower elsewhere."""
    return x.exp_() if tile.sure else x.mul_(_LOG2_E).exp2_()


def _cut(bias: Tensor, tile: AttentionTile) -> Tensor:
    """The part of a (B|1, H|1, T|1, S|1) bias that belongs to a tile."""
    rows = bias if bias.shape[2] == 1 else bias[:, :, tile.a : tile.b]
    return rows if bias.shape[3] == 1 else rows[..., tile.c : tile.d]


def finite(k: Tensor, v: Tensor) -> bool:
    """Whether two quick sums rule out NaN and Inf. A sum that overflows does not, which only costs time."""
    return bool((k.sum(dtype=torch.float32) + v.sum(dtype=torch.float32)).isfinite())


class TileGrid(NamedTuple):
    """Queries and keys of a tile, and which tiles are visited."""

    rows: int
    cols: int
    blocks: BlockMap

    @property
    def visited(self) -> int:
        """Scores that a head computes, including those beyond the edges."""
        return int(self.blocks.maybe.sum()) * self.rows * self.cols


def tile_grid(pattern: Pattern, layout: Layout, kv_layout: Layout, heads: int, device: str) -> TileGrid:
    """Large tiles, which have the least overhead, or small ones if these leave out a quarter more.

    `heads` counts the heads of all rows. On a CPU the scores of a tile should fit its caches, on a GPU they should keep
    it busy.
    """

    def grid(rows: int, cols: int) -> TileGrid:
        return TileGrid(rows, cols, block_map(pattern, layout, kv_layout, rows, cols))

    (t, s), small = (layout.shape[1], kv_layout.shape[1]), _SMALL if heads >= _MANY_HEADS else 2 * _SMALL
    cols = min(256, _round_up(s, 16))
    budget = (1 << 20 if device == "cpu" else 1 << 24) // (heads * cols)
    rows = min(256, max(16, 1 << max(0, budget).bit_length() - 1) if budget else 16)
    large = grid(min(rows, _round_up(t, 16)), cols)
    if device != "cpu" or large.visited > t * s // 2:
        return large
    finer = grid(min(small, large.rows), small)
    return finer if 4 * finer.visited <= 3 * large.visited else large


def _round_up(n: int, unit: int) -> int:
    return max(unit, -(-n // unit) * unit)


def forward(p: TiledProblem, out: Tensor, lse: Tensor) -> None:
    low = torch.finfo(p.dtype).min  # finite: a row that has seen nothing yet gives no NaN
    for a, b in p.row_blocks():
        q = p.queries(p.q, a, b).mul_(p.scale) if p.q.dtype != p.dtype else p.queries(p.q, a, b) * p.scale
        most = q.new_full((*q.shape[:2], 1), low)
        total = torch.zeros_like(most)
        acc = q.new_zeros(p.n, q.shape[1], p.v.shape[-1])
        poisoned: Tensor | None = None
        for tile in p.tiles(a, b):
            s, _ = p.scores(q, tile)
            higher = torch.maximum(most, s.amax(-1, keepdim=True))
            w = _exp_(s.sub_(higher), tile)
            fade = (most - higher).exp_()
            total.mul_(fade).add_(w.sum(-1, keepdim=True))
            if p.thinning is not None:
                w.mul_(p.keep(w, tile))
            acc.mul_(fade).baddbmm_(w, p.v[:, tile.c : tile.d])
            most = higher
            seen = p.poison(tile)
            if seen is not None:
                poisoned = seen if poisoned is None else poisoned | seen
        acc.div_(total.clamp(min=torch.finfo(p.dtype).tiny))
        if poisoned is not None:
            acc.masked_fill_(poisoned.reshape(p.n, -1, 1), float("nan"))
        p.put(out, acc, a, b)
        p.put(lse[..., None], most + total.log(), a, b)


def backward(
    p: TiledProblem, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, list[Tensor | None]]:
    d_q = torch.empty_like(p.q)
    # Contiguous blocks: batched products add into them directly.
    d_k, d_v = ([part.new_zeros(part.shape) for part in x.split(p.cols, 1)] for x in (p.k, p.v))
    d_bias: list[Tensor | None] = [torch.zeros_like(t) if t.is_floating_point() else None for t in p.tensors]
    for a, b in p.row_blocks():
        q, g = p.queries(p.q, a, b) * p.scale, p.queries(grad_out, a, b)
        norm = p.queries(lse[..., None], a, b)
        norm = norm.masked_fill(norm == float("-inf"), float("inf"))  # rows that see nothing: weights of exp(−∞)
        delta = (g * p.queries(out, a, b).nan_to_num()).sum(-1, keepdim=True)
        if grad_lse is not None:
            delta = delta - p.queries(grad_lse[..., None], a, b)
        d_q_rows = torch.zeros_like(q)
        for tile in p.tiles(a, b):
            s, capped = p.scores(q, tile)
            w = _exp_(s.sub_(norm), tile)
            keys, values = p.k[:, tile.c : tile.d], p.v[:, tile.c : tile.d]
            d_w = torch.bmm(g, values.mT, out=p.buffer("d_w", q.shape[1], tile.d - tile.c))
            if p.thinning is not None:
                keep = p.keep(w, tile)
                d_v[tile.column].baddbmm_((w * keep).mT, g)
                d_w.mul_(keep)
            else:
                d_v[tile.column].baddbmm_(w.mT, g)
            d_s = d_w.sub_(delta).mul_(w)
            if p.bias:
                _bias_grad(p, tile, d_s, d_bias)
            if capped is not None:
                d_s.mul_(1 - capped.square())
            d_q_rows.baddbmm_(d_s, keys)
            d_k[tile.column].baddbmm_(d_s.mT, q)
        p.put(d_q, d_q_rows.mul_(p.scale), a, b)
    return d_q, p.per_key(d_k), p.per_key(d_v), d_bias


def _bias_grad(p: TiledProblem, tile: AttentionTile, d_s: Tensor, into: list[Tensor | None]) -> None:
    grad = p.by_head(d_s, tile)
    if p.bias == DENSE:
        if into[0] is not None:
            part = _cut(into[0], tile)
            part.add_(grad.sum_to_size(part.shape))
        return
    if not scheme_of(p.bias).has_bias_grad:
        return
    grads = scheme_of(p.bias).bias_grad(tuple(p.tensors), *p.views(tile), grad)
    for total, grad_of in zip(into, grads, strict=True):
        if total is not None and grad_of is not None:
            total.add_(grad_of)
