"""Attention over a plan of strips: one batched product serves as many strips as fit into the caches.

For a strip Q with its keys K and values V, as FlashAttention has it (Dao et al. 2022): S = scale · QKᵀ, L = log Σ exp S,
O = exp(S − L) V. Backward recomputes W = exp(S − L): dV = Wᵀ dO, dS = W ∘ (dO Vᵀ − rowsum(dO ∘ O) + dL),
dQ = scale · dS K, dK = scale · dSᵀ Q.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.layout import Layout, View
from ...patterns.basic import Pattern
from .spans import Even, Gathered, Rows
from .strips import Band, Plan, Scattered, n_queries

_LOG2_E = math.log2(math.e)  # weights are powers of 2: eˣ is slow where its result is denormal or 0
_AT_ONCE = 1 << 18  # scores computed together: 1 MiB in fp32, which a core's own cache holds


_Limits = list[tuple[int, int, Tensor]]


class _Keys(NamedTuple):
    """Keys of some strips, and for the parts of them where some pair is forbidden, (from, to, limit): +∞ where allowed, −∞
    where not, (strips or 1, rows, to − from)."""

    rows: Rows
    limits: _Limits


@dataclass
class BlockSparse:
    """Queries (B, T, H, D), keys (B, S, K, D), values (B, S, K, E), finite; layouts that are the same for all rows."""

    q: Tensor
    k: Tensor
    v: Tensor
    layout: Layout
    kv_layout: Layout
    pattern: Pattern
    plan: Plan
    scale: float
    dtype: torch.dtype = field(init=False)
    buffers: dict[str, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.dtype = torch.promote_types(self.q.dtype, torch.float32)
        self.k, self.v = self.k.to(self.dtype), self.v.to(self.dtype)  # several strips meet each key

    # -- forward and backward -----------------------------------------------------------------------------------

    def forward(self) -> tuple[Tensor, Tensor]:
        """Output (B, T, H, E) and log-sum-exp (B, T, H): 0 and −∞ for what sees nothing."""
        low, tiny = torch.finfo(self.dtype).min, torch.finfo(self.dtype).tiny
        out = self.q.new_empty(*self.q.shape[:3], self.v.shape[-1])
        lse = self.q.new_empty(self.q.shape[:3], dtype=self.dtype)
        if n_queries(self.plan) < self.q.shape[1]:
            out.zero_()
            lse.fill_(float("-inf"))
        for queries, parts in self._chunks():
            for b, h, k, v in self._heads():
                q = self._strips(queries, self.q[b, :, h])
                scores = [self._scores(q, k, keys, f"s{i}") for i, keys in enumerate(parts)]
                most = scores[0].amax(-1, keepdim=True)
                for s in scores[1:]:
                    torch.maximum(most, s.amax(-1, keepdim=True), out=most)
                most.clamp_(min=low)  # finite, so that a row that sees nothing makes no NaN
                weights = [s.sub_(most).exp2_() for s in scores]
                total = weights[0].sum(-1, keepdim=True)
                acc = torch.bmm(weights[0], parts[0].rows.of(v), out=self._buffer("acc", *q.shape[:2], v.shape[-1]))
                for w, keys in zip(weights[1:], parts[1:], strict=True):
                    total += w.sum(-1, keepdim=True)
                    acc.baddbmm_(w, keys.rows.of(v))
                queries.put(lse[b, :, h, None], most.add_(total.log2()).div_(_LOG2_E))
                queries.put(out[b, :, h], acc.div_(total.clamp_(min=tiny)))
        return out, lse

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """dQ (B, T, H, D), dK (B, S, K, D) and dV (B, S, K, E). `lse` may be that of more keys than these."""
        d_q, d_k, d_v = torch.zeros_like(self.q, dtype=self.dtype), *map(torch.zeros_like, (self.k, self.v))
        for queries, parts in self._chunks():
            for b, h, k, v in self._heads():
                q, d, o = (self._strips(queries, x[b, :, h]) for x in (self.q, d_out, out))
                norm = self._strips(queries, lse[b, :, h, None])
                norm = (norm * _LOG2_E).masked_fill_(norm == float("-inf"), float("inf"))  # 2^−∞ where nothing is seen
                delta = (d * o).sum(-1, keepdim=True)
                if d_lse is not None:
                    delta -= self._strips(queries, d_lse[b, :, h, None])
                d_strips = q.new_zeros(q.shape)
                kv = h // (self.q.shape[2] // self.k.shape[2])
                for keys in parts:
                    w = self._scores(q, k, keys, "s").sub_(norm).exp2_()
                    keys.rows.add(d_v[b, :, kv], self._product("d_v", w.mT, d))
                    d_s = self._product("d_w", d, keys.rows.of(v).mT).sub_(delta).mul_(w)
                    d_strips.baddbmm_(d_s, keys.rows.of(k), alpha=self.scale)
                    keys.rows.add(d_k[b, :, kv], self._product("d_k", d_s.mT, q, self.scale))
                queries.put(d_q[b, :, h], d_strips)
        return d_q, d_k, d_v

    # -- parts of them ------------------------------------------------------------------------------------------

    def _heads(self) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Row, query head, and the keys (S, D) and values (S, E) that it has."""
        group = self.q.shape[2] // self.k.shape[2]
        for b in range(self.q.shape[0]):
            for h in range(self.q.shape[2]):
                yield b, h, self.k[b, :, h // group], self.v[b, :, h // group]

    def _strips(self, queries: Rows, x: Tensor) -> Tensor:
        return queries.of(x).to(self.dtype)

    def _scores(self, q: Tensor, k: Tensor, keys: _Keys, name: str) -> Tensor:
        """Scores in units of ln 2, (strips, rows, keys)."""
        s = self._product(name, q, keys.rows.of(k).mT, self.scale * _LOG2_E)
        for start, stop, limit in keys.limits:
            part = s[..., start:stop]
            torch.minimum(part, limit, out=part)  # several times as fast as filling by a boolean mask
        return s

    def _product(self, name: str, a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        """alpha · ab in a buffer of that name."""
        into = self._buffer(name, a.shape[0], a.shape[1], b.shape[2])
        return torch.baddbmm(into, a, b, beta=0, alpha=alpha, out=into)

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Memory that is used again and again: fresh pages cost more than the arithmetic."""
        size = shape[0] * shape[1] * shape[2]
        if name not in self.buffers or self.buffers[name].numel() < size:
            self.buffers[name] = torch.empty(size, dtype=self.dtype, device=self.q.device)
        return self.buffers[name][:size].view(shape)

    # -- the plan, in pieces that fit into the caches -----------------------------------------------------------

    def _chunks(self) -> Iterator[tuple[Rows, list[_Keys]]]:
        """Some strips at a time: their queries and their keys."""
        for entry in self.plan:
            yield from self._of_band(entry) if isinstance(entry, Band) else self._of_scattered(entry)

    def _of_band(self, band: Band) -> Iterator[tuple[Rows, list[_Keys]]]:
        at_once = max(1, _AT_ONCE // (band.rows * sum(run.length for run in band.runs)))
        kept: dict[int, _Limits] = {}
        for i in range(0, band.n, at_once):
            n = min(at_once, band.n - i)
            queries, parts = Even(band.first + i * band.rows, band.rows, band.rows, n), list[_Keys]()
            for number, run in enumerate(band.runs):
                keys = Even(run.start + i * run.step, run.step, run.length, n)
                limits = kept.get(number) or self._limits(queries.tokens(), keys.tokens(), run.masked, run.alike)
                if run.alike:
                    kept[number] = limits
                parts.append(_Keys(keys, limits))
            yield queries, parts

    def _of_scattered(self, entry: Scattered) -> Iterator[tuple[Rows, list[_Keys]]]:
        width = entry.unit * len(entry.blocks[0])
        at_once = max(1, _AT_ONCE // (entry.rows * width))
        strips, blocks = torch.tensor(entry.strips), torch.tensor(entry.blocks)
        for some, theirs in zip(strips.split(at_once), blocks.split(at_once), strict=True):
            queries, keys = Gathered(some[:, None], entry.rows), Gathered(theirs, entry.unit)
            masked = ((0, width),) if entry.masked else ()
            yield queries, [_Keys(keys, self._limits(queries.tokens(), keys.tokens(), masked, False))]

    def _limits(self, queries: Tensor, keys: Tensor, masked: tuple[tuple[int, int], ...], alike: bool) -> _Limits:
        """Where pairs are forbidden: for all strips, or for the first where it is the same for all."""
        some = slice(0, 1) if alike else slice(None)
        q = taken(self.layout, queries[some]).queries()
        return [(a, b, self._limit(q, taken(self.kv_layout, keys[some, a:b]).keys())) for a, b in masked]

    def _limit(self, q: View, k: View) -> Tensor:
        allowed = self.pattern.allowed(q, k) & (q.segment == k.segment) & (q.position >= 0) & (k.position >= 0)
        return torch.where(allowed, float("inf"), float("-inf")).to(self.dtype)


def taken(layout: Layout, index: Tensor) -> Layout:
    """The tokens (n, rows) of a layout's only row, as n rows."""
    segments, roles = (None if x is None else x[0][index] for x in (layout.segments, layout.roles))
    return Layout(layout.positions[0][index], segments, roles)
