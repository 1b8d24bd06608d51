"""Count the pairs that a pattern allows over n positions, and find empty rows, by a quadtree instead of an n×n mask.

Tiles of the score matrix that the pattern's `block` finds full or empty are counted at once; the others are split down to
64×64, and those still undecided are evaluated pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ...core.layout import View
from .intervals import BlockMask, Interval

LEAF = 64
_AT_ONCE = 1 << 22  # pairs evaluated together


class CountedPattern(Protocol):
    """The members of `patterns.algebra.Pattern` that counting needs."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor: ...
    def block(self, q: Interval, k: Interval) -> BlockMask: ...
    @property
    def head_period(self) -> int: ...
    @property
    def per_head(self) -> bool: ...
    @property
    def period(self) -> tuple[int, int] | None: ...


def pairs(pattern: CountedPattern, n: int) -> int:
    """The number of allowed pairs; the mean over heads, rounded down, if they differ.

    A pattern that repeats every P positions is counted by differences q − k, in O(n P), if that is faster than tiles.
    """
    side, q, k = _root(n)
    total, heads = 0, pattern.head_period
    repeats = pattern.period
    while len(q):
        maybe, surely = _block_mask(pattern, q, k, side, n)
        area = (_end(q, side, n) - q) * (_end(k, side, n) - k)
        total += heads * int(area[surely].sum())
        q, k = q[maybe & ~surely], k[maybe & ~surely]
        if repeats is not None and len(q) * LEAF**2 > 2 * n * sum(repeats):
            return _by_difference(pattern, n, *repeats) // heads
        if side == LEAF:
            return (total + sum(int(x.sum()) for _, x in _leaves(pattern, q, k, n))) // heads
        side, q, k = _quarters(side, q, k, n)
    return total // heads


def fully_masked(pattern: CountedPattern, n: int, roles: int = 0) -> list[int]:
    """The positions of queries that see no key in some head. All tokens have the given roles."""
    at = torch.arange(n, device="cpu")[:, None]
    keys = torch.cat([at, torch.zeros_like(at), at - 1], 1).clamp(min=0)  # itself, the first, the one before: O(n)
    seen = evaluate(pattern, at[None], keys[None], roles).any(-1)[0]  # (heads, n)
    side, q, k = _root(n)
    while len(q) and not bool(seen.all()):
        maybe, surely = _block_mask(pattern, q, k, side, n, roles)
        seen |= _covered(q[surely], _end(q[surely], side, n), n)
        open_ = maybe & ~surely & _any_left(seen, q, _end(q, side, n))
        q, k = q[open_], k[open_]
        if side == LEAF:
            _evaluate_leaves(pattern, q, k, n, roles, seen)
            break
        side, q, k = _quarters(side, q, k, n)
    return (~seen.all(0)).nonzero()[:, 0].tolist()


def evaluate(pattern: CountedPattern, q: Tensor, k: Tensor, roles: int = 0) -> Tensor:
    """The rule for queries (N, rows, 1 or cols) and keys (N, 1 or rows, cols): (N, heads, rows, cols)."""
    zero, role = (torch.tensor(bits, device="cpu") for bits in (0, roles))
    queries, keys = (View(x, zero, role, x[..., None]) for x in (q.unsqueeze(1), k.unsqueeze(1)))
    head = torch.arange(pattern.head_period, device="cpu")[:, None, None] if pattern.per_head else None
    allowed = pattern.allowed(queries, keys, head)
    n, rows, cols = torch.broadcast_tensors(q, k)[0].shape  # torch.broadcast_shapes imports sympy: half a second
    return allowed.expand(n, pattern.head_period, rows, cols)


# -- tiles ------------------------------------------------------------------------------------------------------------


def _root(n: int) -> tuple[int, Tensor, Tensor]:
    """The side of a square that contains all pairs, and its corner (first query, first key)."""
    corner = torch.zeros(min(n, 1), dtype=torch.long, device="cpu")
    return LEAF << max(0, (max(n, 1) - 1).bit_length() - 6), corner, corner


def _end(at: Tensor, side: int, n: int) -> Tensor:
    return (at + side).clamp(max=n)


def _block_mask(pattern: CountedPattern, q: Tensor, k: Tensor, side: int, n: int, roles: int = 0) -> list[Tensor]:
    intervals = [Interval(at, _end(at, side, n) - 1, any_role=roles, all_role=roles) for at in (q, k)]
    return [torch.as_tensor(x).expand_as(q) for x in pattern.block(*intervals)]


def _quarters(side: int, q: Tensor, k: Tensor, n: int) -> tuple[int, Tensor, Tensor]:
    side //= 2
    step = torch.tensor([[0, 0], [0, side], [side, 0], [side, side]], device="cpu")
    q, k = (q[:, None] + step[:, 0]).flatten(), (k[:, None] + step[:, 1]).flatten()
    inside = (q < n) & (k < n)
    return side, q[inside], k[inside]


def _leaves(pattern: CountedPattern, q: Tensor, k: Tensor, n: int, roles: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of tiles: their rows (N, 64), and the pairs allowed in them (N, heads, 64, 64)."""
    step, at_once = torch.arange(LEAF, device="cpu"), max(1, _AT_ONCE // (LEAF**2 * pattern.head_period))
    for i in range(0, len(q), at_once):
        rows, cols = q[i : i + at_once, None] + step, k[i : i + at_once, None] + step
        allowed = evaluate(pattern, rows[..., None], cols[:, None], roles)
        yield rows, allowed & (rows < n)[:, None, :, None] & (cols < n)[:, None, None]


def _covered(start: Tensor, end: Tensor, n: int) -> Tensor:
    """Boolean (n,): positions in any of the intervals."""
    one = torch.ones_like(start)
    steps = torch.zeros(n + 1, dtype=torch.long, device="cpu").index_add(0, start, one).index_add(0, end, -one)
    return steps[:n].cumsum(0) > 0


def _any_left(seen: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """For each interval, whether some query in it has seen no key yet."""
    left = torch.nn.functional.pad((~seen.all(0)).long().cumsum(0), (1, 0))
    return left[end] > left[start]


def _evaluate_leaves(pattern: CountedPattern, q: Tensor, k: Tensor, n: int, roles: int, seen: Tensor) -> None:
    """Evaluate undecided tiles, those near the diagonal first, until every query in them has seen a key."""
    order = (q - k).abs().argsort()
    q, k = q[order], k[order]
    while len(q):
        for rows, allowed in _leaves(pattern, q[:LEAF], k[:LEAF], n, roles):
            some = allowed.any(-1).movedim(1, 0)  # (heads, N, 64)
            head, tile, row = some.nonzero(as_tuple=True)
            seen[head, rows[tile, row]] = True
        q, k = q[LEAF:], k[LEAF:]
        left = _any_left(seen, q, _end(q, LEAF, n))
        q, k = q[left], k[left]


def _by_difference(pattern: CountedPattern, n: int, period: int, start: int) -> int:
    """Allowed pairs of all heads, for a rule that repeats every P positions from `start` on.

    Σ over residues r and differences d of rule(r, d) · (number of q ≡ r mod P with a key at q − d), plus the strips before
    `start` pair by pair.
    """
    start, total = min(start, n), 0
    m, at = n - start, torch.arange(n, device="cpu")
    for i in range(0, start, LEAF):
        strip = at[i : min(i + LEAF, start)][None, :, None]
        total += int(evaluate(pattern, strip, at[None, None]).sum())
        total += int(evaluate(pattern, at[None, start:, None], strip.mT).sum())
    step = max(1, _AT_ONCE // (period * pattern.head_period))
    residue = torch.arange(period, device="cpu")[:, None]
    for i in range(1 - m, m, step):
        d = torch.arange(i, min(i + step, m), device="cpu")
        low, high = d.clamp(min=0), m - 1 + d.clamp(max=0)
        first = low + (residue - low) % period
        times = ((high - first) // period + 1).clamp(min=0)
        total += int((evaluate(pattern, (first + start)[None], (first - d + start)[None])[0] * times).sum())
    return total
