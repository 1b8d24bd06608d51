"""MXFP4: a group's power of two, and the 16 numbers of E2M1."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.quantization.formats.mxfp4 import MXFP4


@pytest.mark.parametrize(
    ("largest", "exponent"), [(7.99, 0), (8.0, 1), (6.0, 0), (3.99, -1), (1.0, -2), (0.75, -3), (2.0**100, 98)]
)
def test_the_exponent_is_that_of_the_largest_weight_minus_2(largest: float, exponent: int) -> None:
    scales, zeros = MXFP4().fit(torch.tensor([[[0.1, -largest]]]))
    assert zeros is None and scales.tolist() == [[127 + exponent]]


def test_exponents_end_at_254_and_zeros_have_one() -> None:
    assert MXFP4().fit(torch.tensor([[[3e38]]]))[0].tolist() == [[127 + 125]]
    assert MXFP4().fit(torch.zeros(1, 1, 2))[0].tolist() == [[127 - 124 - 2]]


def test_codes_are_sign_exponent_and_mantissa() -> None:
    """By the scale 1/2, 2 is stored as 4 = 0b0110, and −0.75 as −1.5 = 0b1011."""
    format, scale = MXFP4(), torch.tensor([[[126]]], dtype=torch.uint8)
    codes = format.encode(torch.tensor([[[2.0, -0.75, 0.1, -3.0, -0.2, 9.0]]]), scale, None)
    assert codes.tolist() == [[[0b0110, 0b1011, 0b0000, 0b1111, 0b1001, 0b0111]]]
    assert format.decode(codes, scale, None).tolist() == [[[2.0, -0.75, 0.0, -3.0, -0.25, 3.0]]]
