"""Sizes that are read from a spec: windows of patterns that families have, and of patterns that none has."""

from __future__ import annotations

import pytest

from qkv.io.families.places import sliding, window_of
from qkv.nn.patterns.basic import Pattern, causal, documents, full, window


@pytest.mark.parametrize("size", [None, 1, 7])
def test_the_window_of_a_sliding_pattern(size: int | None) -> None:
    assert window_of(sliding(size)) == size


def test_the_order_of_parts_does_not_matter() -> None:
    assert window_of(window(3) & causal()) == 3


@pytest.mark.parametrize(
    "pattern",
    [full(), causal() & documents(), causal() & ~window(2), causal() & window(2, ahead=4), causal() | window(2)],
)
def test_other_patterns_have_none(pattern: Pattern) -> None:
    with pytest.raises(AttributeError, match="is neither causal nor a causal window"):
        window_of(pattern)
