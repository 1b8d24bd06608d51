"""Digests are equal for equal values, whatever holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.testing.digest import digest

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(VALUES, VALUES)
def test_digests_tell_values_apart(a: Any, b: Any) -> None:
    assert (digest(a) == digest(b)) == (repr(_ordered(a)) == repr(_ordered(b)))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("other", [np.zeros((3, 2)), np.zeros((2, 3), np.int64), np.ones((2, 3)), np.zeros(6)])
def test_arrays_differ_by_shape_type_and_values(other: np.ndarray[Any, Any]) -> None:
    assert digest(np.zeros((2, 3))) != digest(other)


def test_memory_order_does_not_matter() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert digest(array) == digest(np.asfortranarray(array)) == digest(torch.tensor(array))
