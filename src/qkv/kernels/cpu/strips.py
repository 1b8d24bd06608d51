"""Which keys each strip of queries has to meet, and which strips meet theirs in the same way.

A strip is a run of consecutive queries. Its keys come as runs of the block map's blocks, made from intervals. Neighboring
strips whose runs have the same lengths and move on evenly form a `Band`: over a window, all strips but the first few. A
band is one batched product over views that overlap, without a copy. Strips that fit no band, as with blocks at random,
are put together by the number of their blocks: `Scattered`, whose keys have to be gathered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.layout import Layout
from ...patterns.basic import Pattern
from ..blocks import side, verdict

_COARSE = 16  # blocks on the side of a square that is looked at before the blocks in it
_FEW = 4  # strips in fewer than which there is little to put together
_WIDE = 4096  # keys of a strip above which they are not gathered; with half as many on average, strips are taller
_TALL = 256


class Run(NamedTuple):
    """Keys start … start + length − 1 of a band's first strip, and `step` further on for each next one."""

    start: int
    step: int
    length: int
    masked: tuple[tuple[int, int], ...]  # parts of it, from … to, in which some pair may be forbidden
    alike: bool  # what is allowed is the same for every strip of the band


class Band(NamedTuple):
    """`n` strips of `rows` queries each, the first one's first query, and the keys that they meet."""

    first: int
    rows: int
    n: int
    runs: tuple[Run, ...]


class Scattered(NamedTuple):
    """Strips of `rows` queries, and for each of them as many blocks of `unit` keys, all of them whole."""

    rows: int
    unit: int
    strips: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    masked: bool


Plan = tuple[Band | Scattered, ...]


class _Strip(NamedTuple):
    number: int
    starts: tuple[int, ...]  # of its runs: the first key
    lengths: tuple[int, ...]
    sure: tuple[tuple[bool, ...], ...]  # of each run's blocks: whether every pair is allowed


@lru_cache(maxsize=64)
def plain_plan(pattern: Pattern, t: int, s: int, q_start: int, k_start: int, unit: int) -> Plan:
    """`make_plan` for unpadded tokens of one segment at consecutive positions, remembered."""
    return make_plan(pattern, Layout.full(t, q_start, "cpu"), Layout.full(s, k_start, "cpu"), unit)


def make_plan(pattern: Pattern, layout: Layout, kv_layout: Layout, unit: int) -> Plan:
    """All pairs that the block map may allow, in few large products. Time and memory grow with them and with tokens."""
    rows, (t, s) = unit, (layout.shape[1], kv_layout.shape[1])
    strips = _strips(pattern, layout, kv_layout, rows, unit)
    if sum(sum(strip.lengths) for strip in strips) > _WIDE // 2 * len(strips):
        rows = max(unit, _TALL)  # taller strips waste more at both ends of a run, which is little of long ones
        strips = _strips(pattern, layout, kv_layout, rows, unit)
    moves = _Moves(pattern, layout, kv_layout)
    plan: list[Band | Scattered] = []
    left = defaultdict[tuple[int, bool], list[_Strip]](list)
    for band in _bands(strips, t // rows):
        if len(band) >= _FEW or not _gatherable(band[0], rows, unit, t, s):
            plan.append(moves.band(band, rows, t, unit))
            continue
        for strip in band:
            left[sum(strip.lengths), not all(all(sure) for sure in strip.sure)].append(strip)
    for (_, masked), some in left.items():
        if len(some) < _FEW:
            plan += [moves.band([strip], rows, t, unit) for strip in some]
        else:
            blocks = tuple(tuple(_blocks(strip, unit)) for strip in some)
            plan.append(Scattered(rows, unit, tuple(strip.number for strip in some), blocks, masked))
    return tuple(plan)


def n_queries(plan: Plan) -> int:
    """How many queries see something."""
    return sum(x.rows * (x.n if isinstance(x, Band) else len(x.strips)) for x in plan)


def n_scores(plan: Plan) -> int:
    """How many scores a head computes."""
    total = 0
    for x in plan:
        if isinstance(x, Band):
            total += x.rows * x.n * sum(run.length for run in x.runs)
        else:
            total += x.rows * x.unit * sum(map(len, x.blocks))
    return total


# -- strips -----------------------------------------------------------------------------------------------------------


def _strips(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, unit: int) -> list[_Strip]:
    """Every strip that sees something, in order."""
    n_keys = kv_layout.shape[1]
    found: dict[int, list[tuple[int, list[bool]]]] = {}
    for i, j, sure in zip(*(x.tolist() for x in visits(pattern, layout, kv_layout, rows, unit)), strict=True):
        runs = found.setdefault(i, [])
        if runs and runs[-1][0] + len(runs[-1][1]) == j:
            runs[-1][1].append(sure)
        else:
            runs.append((j, [sure]))
    return [
        _Strip(
            i,
            tuple(j * unit for j, _ in runs),
            tuple(min(len(sure) * unit, n_keys - j * unit) for j, sure in runs),
            tuple(tuple(sure) for _, sure in runs),
        )
        for i, runs in found.items()
    ]


def visits(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, unit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Strip, block and whether all its pairs are surely allowed, of all that may have one: sorted by strip, then block.

    Squares of 16 × 16 are looked at first, and only into those that may have a pair.
    """
    sides = side(layout, rows), side(kv_layout, unit)
    coarse = side(layout, rows * _COARSE), side(kv_layout, unit * _COARSE)
    square = verdict(pattern, coarse[0].at((slice(None), None)), coarse[1])[0].nonzero() * _COARSE
    step = torch.arange(_COARSE, device="cpu")
    i = (square[:, 0, None, None] + step[:, None]).expand(-1, -1, _COARSE).flatten()
    j = (square[:, 1, None, None] + step).expand(-1, _COARSE, -1).flatten()
    inside = (i < len(sides[0].some)) & (j < len(sides[1].some))
    i, j = i[inside], j[inside]
    maybe, surely = (x.expand(i.shape) for x in verdict(pattern, sides[0].at(i), sides[1].at(j)))
    i, j, surely = i[maybe], j[maybe], surely[maybe]
    order = (i * len(sides[1].some) + j).argsort()
    return i[order], j[order], surely[order]


def _gatherable(strip: _Strip, rows: int, unit: int, t: int, s: int) -> bool:
    """Whether it and all its blocks are whole, and few enough to be copied."""
    whole = all(start + unit * len(sure) <= s for start, sure in zip(strip.starts, strip.sure, strict=True))
    return whole and (strip.number + 1) * rows <= t and sum(strip.lengths) <= _WIDE


def _blocks(strip: _Strip, unit: int) -> Iterator[int]:
    for start, sure in zip(strip.starts, strip.sure, strict=True):
        yield from range(start // unit, start // unit + len(sure))


# -- bands ------------------------------------------------------------------------------------------------------------


def _bands(strips: list[_Strip], n_whole: int) -> Iterator[list[_Strip]]:
    """Neighbors whose runs have the same shapes and move on by the same steps."""
    band: list[_Strip] = []
    for strip in strips:
        if band and not (strip.number < n_whole and _continues(band, strip)):
            yield band
            band = []
        band.append(strip)
    if band:
        yield band


def _continues(band: list[_Strip], strip: _Strip) -> bool:
    last = band[-1]
    if (strip.number, strip.lengths, strip.sure) != (last.number + 1, last.lengths, last.sure):
        return False
    steps = _steps(last, strip)
    return min(steps) >= 0 and (len(band) == 1 or _steps(band[0], band[1]) == steps)


def _steps(one: _Strip, other: _Strip) -> list[int]:
    return [b - a for a, b in zip(one.starts, other.starts, strict=True)]


class _Moves:
    """Makes bands, with what is known of whether a rule stays the same when queries and keys move on together."""

    def __init__(self, pattern: Pattern, layout: Layout, kv_layout: Layout) -> None:
        self.starts = layout.start, kv_layout.start
        known = None not in self.starts and layout.sequential and kv_layout.sequential
        marked = any(x.segments is not None or x.roles is not None for x in (layout, kv_layout))
        self.recurrence = pattern.recurrence if known and not marked else None

    def band(self, strips: list[_Strip], rows: int, t: int, unit: int) -> Band:
        one, first = strips[0], strips[0].number * rows
        steps = _steps(one, strips[1]) if len(strips) > 1 else [0] * len(one.starts)
        runs = (
            Run(start, step, length, _masked(sure, length, unit), self.alike(first, start, step, rows))
            for start, step, length, sure in zip(one.starts, steps, one.lengths, one.sure, strict=True)
        )
        return Band(first, min(rows, t - first), len(strips), tuple(runs))

    def alike(self, first: int, start: int, step: int, rows: int) -> bool:
        if self.recurrence is None or step != rows:
            return False
        period, since = self.recurrence
        q_start, k_start = self.starts
        assert q_start is not None and k_start is not None
        return rows % period == 0 and min(first + q_start, start + k_start) >= since


def _masked(sure: tuple[bool, ...], length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """The parts of a run of which it is not sure that every pair is allowed."""
    out, at = [], 0
    for known, flags in groupby(sure):
        end = at + unit * len(list(flags))
        if not known:
            out.append((at, min(end, length)))
        at = end
    return tuple(out)
