"""Rules with gaps, as dilated windows have them, over tokens in another order, in which there are none.

Positions with one residue mod d stand side by side, as a segment of their own. A rule of several parts is served part by
part: their results are merged by their log-sum-exp, and their gradients, made with that of the whole, add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.layout import Layout
from ...patterns.basic import Pattern
from .block_sparse import BlockSparse
from .strips import Plan, make_plan, plain_plan


class Grouping(NamedTuple):
    """One part: tokens `order`[0], `order`[1], …, or as they stand; their places, rule and plan."""

    order: Tensor | None
    layout: Layout
    pattern: Pattern
    plan: Plan

    def group(self, x: Tensor) -> Tensor:
        return x if self.order is None else x.index_select(1, self.order)

    def ungroup(self, x: Tensor) -> Tensor:
        return x if self.order is None else torch.empty_like(x).index_copy_(1, self.order, x)


@lru_cache(maxsize=64)
def groupings(pattern: Pattern, n: int, unit: int) -> tuple[Grouping, ...]:
    """For n tokens at consecutive positions; nothing where the pattern has no gaps to close."""
    return tuple(_grouping(rule, n, d, unit) for d, rule in pattern.regroup() or ())


def _grouping(rule: Pattern, n: int, d: int, unit: int) -> Grouping:
    if d == 1:
        return Grouping(None, Layout.full(n, device="cpu"), rule, plain_plan(rule, n, n, 0, 0, unit))
    order = torch.cat([torch.arange(residue, n, d, device="cpu") for residue in range(min(d, n))])
    layout = Layout((order // d)[None], (order % d)[None], padding="none", one_segment=False)
    return Grouping(order, layout, rule, make_plan(rule, layout, layout, unit))


@dataclass
class Regrouped:
    """As `BlockSparse`, for queries and keys of the same tokens."""

    q: Tensor
    k: Tensor
    v: Tensor
    groupings: tuple[Grouping, ...]
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        results = [[x.ungroup(y) for y in part.forward()] for x, part in self._parts()]
        out, lse = results[0]
        for more, log in results[1:]:
            both = torch.logaddexp(lse, log)
            old, new = ((x - both).exp_().nan_to_num_(0.0)[..., None] for x in (lse, log))  # −∞ − (−∞): nothing seen
            out, lse = (out * old + more * new).to(out.dtype), both
        return out, lse

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None) -> tuple[Tensor, ...]:
        sums: tuple[Tensor, ...] = ()
        for grouping, part in self._parts():
            theirs = [grouping.group(x) for x in (out, lse, d_out)]
            found = part.backward(theirs[0], theirs[1], theirs[2], None if d_lse is None else grouping.group(d_lse))
            whole = tuple(grouping.ungroup(x) for x in found)
            sums = tuple(a.add_(b) for a, b in zip(sums, whole, strict=True)) if sums else whole
        return sums

    def _parts(self) -> Iterator[tuple[Grouping, BlockSparse]]:
        for x in self.groupings:
            q, k, v = (x.group(t) for t in (self.q, self.k, self.v))
            yield x, BlockSparse(q, k, v, x.layout, x.layout, x.pattern, x.plan, self.scale)
