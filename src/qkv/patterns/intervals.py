"""Intervals of positions, and what a rule says about all pairs of two of them: three-valued logic without a mask."""

from __future__ import annotations

from typing import Any, NamedTuple


class Interval(NamedTuple):
    """Inclusive bounds within which a block of tokens lies: Python numbers, or tensors that broadcast like a `View`."""

    low: Any
    high: Any
    segment_low: Any = 0
    segment_high: Any = 0
    any_role: Any = 0  # bits that some token of the block has
    all_role: Any = 0  # bits that every token of the block has


BlockMask = tuple[Any, Any]  # (some pair of the two blocks may be allowed, every pair surely is)


def difference(q: Interval, k: Interval, unit: int = 1) -> tuple[Any, Any]:
    """The least and the most that ⌊q / unit⌋ − ⌊k / unit⌋ can be."""
    return q.low // unit - k.high // unit, q.high // unit - k.low // unit


def between(span: tuple[Any, Any], low: int, high: int) -> BlockMask:
    """Whether some number of a span may be in low … high, and whether every one surely is."""
    least, most = span
    return (least <= high) & (most >= low), (most <= high) & (least >= low)


def multiple(span: tuple[Any, Any], of: int) -> BlockMask:
    """Whether some number of a span may be a multiple, and whether every one surely is."""
    least, most = span
    last = most // of * of
    return last >= least, ((least == most) & (last == least)) | (of == 1)


def either(a: BlockMask, b: BlockMask) -> BlockMask:
    return a[0] | b[0], a[1] | b[1]


def both(a: BlockMask, b: BlockMask) -> BlockMask:
    return a[0] & b[0], a[1] & b[1]
