"""Boxes of a pattern: their union is the pattern."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qkv.nn.kernels.flash.boxes import FAR, Box, boxes
from qkv.nn.patterns.basic import (
    Pattern,
    by_head,
    causal,
    dilated,
    documents,
    full,
    global_tokens,
    prefix,
    sinks,
    window,
)

PLAIN = st.one_of(
    st.just(full()),
    st.just(causal()),
    st.just(documents()),
    st.builds(window, st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12))),
    st.builds(sinks, st.integers(1, 12)),
    st.builds(prefix, st.integers(1, 12), st.booleans()),
    st.builds(global_tokens, st.integers(1, 12)),
)


JOINED = st.recursive(
    PLAIN,
    lambda part: st.one_of(
        st.builds(lambda a, b: a & b, part, part),
        st.builds(lambda a, b: a | b, part, part),
        st.builds(lambda a: ~a, part),
    ),
    max_leaves=4,
)


def inside(box: Box, n: int) -> Tensor:
    q, k = torch.arange(n)[:, None], torch.arange(n)[None]
    back = q - k
    bounds = zip((back, q, k), box[::2], box[1::2], strict=True)
    found = torch.ones(n, n, dtype=torch.bool)
    for x, low, high in bounds:
        found &= (x >= low) & (x <= high)
    return found


@given(JOINED)
def test_boxes_are_the_pattern(pattern: Pattern) -> None:
    found = boxes(pattern)
    if found is not None:
        union = torch.zeros(20, 20, dtype=torch.bool)
        for box in found:
            union |= inside(box, 20)
        assert torch.equal(union, pattern.mask(20)), found


@pytest.mark.parametrize(
    "pattern, expected",
    [
        (causal(), (Box(back_low=0),)),
        (causal() & window(5), (Box(back_low=0, back_high=4),)),
        (~causal(), (Box(back_high=-1),)),
        (~full(), ()),
        (window(10**12), (Box(),)),
        (causal() & dilated(3, 2), None),
        (prefix(), None),
        (by_head(causal(), full()), None),
    ],
)
def test_boxes_of_some_patterns(pattern: Pattern, expected: Any) -> None:
    found = boxes(pattern)
    if expected == (Box(),):
        assert found is not None and all(min(map(abs, box)) >= FAR - 1 for box in found)
    else:
        assert found == expected
