"""Patterns as unions of boxes over (q − k, q, k): a rule of a few comparisons, which a kernel can decide by itself."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...patterns.basic import And, Causal, Documents, Full, Global, Not, Or, Pattern, Prefix, Sinks, Window

FAR = 2**31 - 1  # further than any position
_PLAIN = (Full, Documents, Causal, Window, Sinks, Prefix, Global)
_MOST = 8  # boxes that a kernel should compare with; beyond them masks are cheaper


class Box(NamedTuple):
    """The pairs of which q − k, q and k lie within inclusive bounds."""

    back_low: int = -FAR
    back_high: int = FAR
    q_low: int = -FAR
    q_high: int = FAR
    k_low: int = -FAR
    k_high: int = FAR


Union = tuple[Box, ...]


@lru_cache(maxsize=256)
def boxes(pattern: Pattern) -> Union | None:
    """The boxes whose union the pattern is among tokens of one segment; None where it is no such union, or a large one."""
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
    if type(pattern) not in _PLAIN:  # a subclass may allow something else
        return None
    if isinstance(pattern, Causal):
        return (Box(back_low=0),)
    if isinstance(pattern, Window):
        ahead = pattern.size if pattern.ahead is None else pattern.ahead
        return (Box(back_low=max(1 - ahead, -FAR), back_high=min(pattern.size - 1, FAR)),)
    if isinstance(pattern, Sinks):
        return (Box(k_high=min(pattern.count - 1, FAR)),)
    if isinstance(pattern, Prefix):
        return None if pattern.length is None else (Box(k_high=min(pattern.length - 1, FAR)),)
    if isinstance(pattern, Global):
        if pattern.first is None:
            return None
        last = min(pattern.first - 1, FAR)
        return (Box(q_high=last), Box(k_high=last))
    return (Box(),)  # Full, and Documents, since segments are kept apart anyway


def _all(unions: list[Union]) -> Union:
    """What lies in a box of every union."""
    found: Union = (Box(),)
    for union in unions:
        found = tuple(dict.fromkeys(both for a, b in product(found, union) if (both := _both(a, b)) is not None))
    return found


def _both(a: Box, b: Box) -> Box | None:
    pairs = zip(a, b, strict=True)
    bounds = [max(x, y) if i % 2 == 0 else min(x, y) for i, (x, y) in enumerate(pairs)]
    empty = any(low > high for low, high in zip(bounds[::2], bounds[1::2], strict=True))
    return None if empty else Box(*bounds)


def _outside(box: Box) -> Union:
    """The rest of the world: beyond one bound or another."""
    found = []
    for axis in (0, 2, 4):
        low, high = box[axis], box[axis + 1]
        names = Box._fields[axis], Box._fields[axis + 1]
        if low > -FAR:
            found.append(Box(**{names[1]: low - 1}))
        if high < FAR:
            found.append(Box(**{names[0]: high + 1}))
    return tuple(found)


def _few(found: Union) -> Union | None:
    found = tuple(dict.fromkeys(found))
    return found if len(found) <= _MOST else None
