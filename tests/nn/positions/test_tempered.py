"""Rotary positions whose queries grow: rotary scores times one factor for each query."""

from __future__ import annotations

import math

import torch

from qkv.core.layout import Layout
from qkv.nn.positions.base import Widths
from qkv.nn.positions.rotary import Rotary
from qkv.nn.positions.tempered import TemperedRotary


def test_queries_grow_by_the_logarithm_of_the_spans_before_them() -> None:
    """1 + beta · ln(1 + ⌊p / length⌋) (Llama 4); keys and the first `length` queries are those of rotary positions."""
    widths = Widths(24, 2, 12, None)
    grown, plain = (spec.module(widths) for spec in (TemperedRotary(beta=0.3, length=4), Rotary()))
    q, layout = torch.randn(1, 13, 2, 12), Layout.full(13, start=2)
    tables, usual = grown.tables(layout), plain.tables(layout)
    assert tables is not None and usual is not None
    factors = [1 + 0.3 * math.log(1 + (p // 4)) for p in range(2, 15)]
    expected = plain.rotate_queries(q, usual) * torch.tensor(factors)[None, :, None, None]
    torch.testing.assert_close(grown.rotate_queries(q, tables), expected)
    assert torch.equal(grown.rotate_keys(q, tables), plain.rotate_keys(q, usual))
    assert factors[:2] == [1.0, 1.0] and factors[-1] > factors[0]
