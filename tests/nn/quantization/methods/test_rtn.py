"""Rounding to nearest: each group by its own scale."""

from __future__ import annotations

import torch

from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.methods.rtn import rtn


def test_each_group_is_rounded_by_its_own_scale() -> None:
    """INT8 in groups of 2: s = max |w| / 127.5, and 1.5 rounds to even."""
    packed = rtn(torch.tensor([[127.5, 1.5, 255.0, -3.1, 0.0, -63.75]]), format_of("int8"), 2)
    assert packed.scales.tolist() == [[1.0, 2.0, 0.5]]
    assert packed.codes.tolist() == [[127, 2, 127, -2, 0, -128]]
    assert packed.dense().tolist() == [[127.0, 2.0, 254.0, -4.0, 0.0, -64.0]]


def test_zero_points_of_asymmetric_groups() -> None:
    """From 0 to 255 by steps of 1: the code of 0 is −128."""
    packed = rtn(torch.tensor([[0.0, 255.0, 100.2, 3.0]]), format_of("int8"), 4, symmetric=False)
    assert packed.zeros is not None and packed.zeros.tolist() == [[-128]]
    assert packed.dense().tolist() == [[0.0, 255.0, 100.0, 3.0]]
