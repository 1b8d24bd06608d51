"""Patterns as unions of boxes over (q − k, q, k): masks of a few comparisons, which a kernel can compute by itself."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...patterns.basic import And, Causal, Documents, Full, Global, Not, Or, Pattern, Prefix, Sinks, Window

FAR = 2**31 - 1  # beyond any position
_PLAIN = (Full, Documents, Causal, Window, Sinks, Prefix, Global)
_MOST = 8  # boxes that a kernel compares with; with more, masks are cheaper


class Box(NamedTuple):
    """The pairs whose q − k, q and k lie within inclusive bounds."""

    back_low: int = -FAR
    back_high: int = FAR
    q_low: int = -FAR
    q_high: int = FAR
    k_low: int = -FAR
    k_high: int = FAR


Union = tuple[Box, ...]


@lru_cache(maxsize=256)
def boxes(pattern: Pattern) -> Union | None:
    """The boxes whose union is the pattern, within one segment; None if there is no such union, or only a large one."""
    if isinstance(pattern, And | Or):
        parts = [boxes(part) for part in pattern.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return _few(_all(known) if isinstance(pattern, And) else sum(known, ()))
    if isinstance(pattern, Not):
        part = boxes(pattern.part)
        return None if part is None else _few(_all([_outside(box) for box in part]))
    return _plain(pattern)


def _plain(pattern: Pattern) -> Union | None:
    if type(pattern) not in _PLAIN:  # a subclass may allow other pairs
        return None
    if isinstance(pattern, Causal):
        return (Box(back_low=0),)
    if isinstance(pattern, Window):
        ahead = pattern.size if pattern.ahead is None else pattern.ahead
        return (Box(back_low=max(1 - ahead, -FAR), back_high=min(pattern.size - 1, FAR)),)
    if isinstance(pattern, Sinks):
        return (Box(k_high=min(pattern.count - 1, FAR)),)
    if isinstance(pattern, Prefix):
        if pattern.length is None:
            return None
        last = min(pattern.length - 1, FAR)
        return (Box(q_high=last if pattern.within else FAR, k_high=last),)
    if isinstance(pattern, Global):
        if pattern.first is None:
            return None
        last = min(pattern.first - 1, FAR)
        return (Box(q_high=last), Box(k_high=last))
    return (Box(),)  # Full, and Documents, because segments are isolated anyway


def _all(unions: list[Union]) -> Union:
    """The intersection of unions."""
    common: Union = (Box(),)
    for union in unions:
        common = tuple(dict.fromkeys(both for a, b in product(common, union) if (both := _both(a, b)) is not None))
    return common


def _both(a: Box, b: Box) -> Box | None:
    pairs = zip(a, b, strict=True)
    bounds = [max(x, y) if i % 2 == 0 else min(x, y) for i, (x, y) in enumerate(pairs)]
    empty = any(low > high for low, high in zip(bounds[::2], bounds[1::2], strict=True))
    return None if empty else Box(*bounds)


def _outside(box: Box) -> Union:
    """The complement of a box: what is beyond one bound or another."""
    outside = []
    for axis in (0, 2, 4):
        low, high = Box._fields[axis : axis + 2]
        if box[axis] > -FAR:
            outside.append(Box(**{high: box[axis] - 1}))
        if box[axis + 1] < FAR:
            outside.append(Box(**{low: box[axis + 1] + 1}))
    return tuple(outside)


def _few(union: Union) -> Union | None:
    union = tuple(dict.fromkeys(union))
    return union if len(union) <= _MOST else None
