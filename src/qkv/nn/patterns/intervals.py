"""Interval arithmetic for block masks: whether a rule allows some pair, or every pair, of two blocks of tokens."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

Bound = int | Tensor
Truth = bool | Tensor
Span = tuple[Bound, Bound]


class Interval(NamedTuple):
    """Inclusive bounds of a block of tokens: Python numbers, or tensors that broadcast like a `View`."""

    low: Bound
    high: Bound
    segment_low: Bound = 0
    segment_high: Bound = 0
    any_role: Bound = 0  # role bits of at least one token
    all_role: Bound = 0  # role bits of every token


BlockMask = tuple[Truth, Truth]  # (some pair of the two blocks may be allowed, every pair surely is)


def difference(q: Interval, k: Interval, unit: int = 1) -> Span:
    """Bounds of ⌊q / unit⌋ − ⌊k / unit⌋."""
    return q.low // unit - k.high // unit, q.high // unit - k.low // unit


def between(span: Span, low: int, high: int) -> BlockMask:
    """Whether some number of a span is in low … high, and whether every number is."""
    least, most = span
    return (least <= high) & (most >= low), (most <= high) & (least >= low)


def multiple(span: Span, of: int) -> BlockMask:
    """Whether some number of a span is a multiple, and whether every number is."""
    least, most = span
    last = most // of * of
    return last >= least, ((least == most) & (last == least)) | (of == 1)


def either(a: BlockMask, b: BlockMask) -> BlockMask:
    return a[0] | b[0], a[1] | b[1]


def both(a: BlockMask, b: BlockMask) -> BlockMask:
    return a[0] & b[0], a[1] & b[1]
