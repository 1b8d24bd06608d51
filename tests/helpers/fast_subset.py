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
