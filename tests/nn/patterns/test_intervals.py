"""Interval arithmetic against every number of the intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.patterns.intervals import Interval, between, both, difference, either, multiple

INTERVALS = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda x: Interval(x[0], x[0] + x[1]))
MASKS = st.sampled_from([(False, False), (True, False), (True, True)])


def numbers(q: Interval, k: Interval, unit: int = 1) -> list[int]:
    return [a // unit - b // unit for a in range(q.low, q.high + 1) for b in range(k.low, k.high + 1)]


@given(INTERVALS, INTERVALS, st.integers(1, 5))
def test_difference_is_bounded_tightly(q: Interval, k: Interval, unit: int) -> None:
    every = numbers(q, k, unit)
    assert difference(q, k, unit) == (min(every), max(every))


@given(INTERVALS, INTERVALS, st.integers(-9, 9), st.integers(0, 9))
def test_between_is_exact(q: Interval, k: Interval, low: int, width: int) -> None:
    inside = [low <= x <= low + width for x in numbers(q, k)]
    assert between(difference(q, k), low, low + width) == (any(inside), all(inside))


@given(INTERVALS, INTERVALS, st.integers(1, 5))
def test_multiple_is_exact(q: Interval, k: Interval, of: int) -> None:
    are = [x % of == 0 for x in numbers(q, k)]
    assert multiple(difference(q, k), of) == (any(are), all(are))


@given(MASKS, MASKS)
def test_combinations_match_each_bound(a: tuple[bool, bool], b: tuple[bool, bool]) -> None:
    assert both(a, b) == (a[0] and b[0], a[1] and b[1])
    assert either(a, b) == (a[0] or b[0], a[1] or b[1])
