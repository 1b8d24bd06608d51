"""Parameters of which a fixed subset runs in the fast tests; the others are marked slow and run by `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def diagonals(*axes: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the product of the axes as parameters. The fast ones are those whose indices add up to a multiple of `every`.

    Each value of an axis is in a fast one if another axis has at least `every` values.
    """
    indexed = product(*(list(enumerate(axis)) for axis in axes))
    return [
        pytest.param(
            *(value for _, value in chosen), marks=() if sum(i for i, _ in chosen) % every == 0 else pytest.mark.slow
        )
        for chosen in indexed
    ]


def fast(values: Iterable[Any], *names: Any) -> list[Any]:
    """Return the values as parameters, all but `names` marked slow. Raises ValueError if one of `names` is no value."""
    values = list(values)
    if missing := [name for name in names if name not in values]:
        raise ValueError(f"no values: {missing}; the values are {values}")
    return [pytest.param(value, marks=() if value in names else pytest.mark.slow) for value in values]


def thinned(values: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the values, tuples of several or parameters, as parameters. Of those that aren't slow yet, one in `every` stays
    fast."""
    kind = type(pytest.param())
    all_of = [v if isinstance(v, kind) else pytest.param(*(v if isinstance(v, tuple) else (v,))) for v in values]
    quick = [i for i, one in enumerate(all_of) if all(mark.name != "slow" for mark in one.marks)]
    for place, i in enumerate(quick):
        if place % every:
            all_of[i] = pytest.param(*all_of[i].values, marks=(*all_of[i].marks, pytest.mark.slow), id=all_of[i].id)
    return all_of
