"""Bug 19 of those that others shipped: index overflow."""

from __future__ import annotations

import pytest
import torch
from axes import biases
from every import every_backend, leaves
from small import (
    randn,
    same,
)

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal, full, window
from qkv.nn.positions.base import Position, Widths


@every_backend
@pytest.mark.parametrize("bias", [e.value for e in biases() if isinstance(e.value, Position)])
def test_bug_19_positions_past_32_bits(backend: str, bias: Position) -> None:
    """Tokens beyond position 2³¹ and 2³³ see what they would see at the beginning."""
    q, k, v = leaves(1)
    module = bias.module(Widths(32, 4, 8, None))
    for parameter in module.parameters():
        parameter.data = randn(*parameter.shape, seed=4)
    options = {"pattern": causal() & window(3), "bias": module.bias(), "backend": backend}
    wanted = attend(q, k, v, layout=Layout.full(5), **options)
    for start in (2**31 - 2, 2**33):
        layout = Layout.full(5, start=start)
        assert layout.positions.dtype == torch.int64
        same(attend(q, k, v, layout=layout, **options), wanted)


def test_bug_19_counts_past_32_bits() -> None:
    """Score pairs and the cost of long inputs are exact: 100,000 tokens have 5 thousand million causal pairs."""
    pairs = causal().pairs(100_000)
    assert pairs == 100_000 * 100_001 // 2
    assert full().pairs(100_000) == 10**10
    long = qkv.preset("gpt2", max_positions=100_000)
    assert long.cost(tokens=100_000).flops > 12 * 4 * 768 * pairs
    assert Layout.from_lengths([3, 5]).positions.dtype == torch.int64
