"""Matrices in 8 and 4 bits: what they stand for, their rows, and parts that do not fit."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.products.formats import Int4, Int8

from .examples import floats, matrix


@pytest.mark.parametrize("kind", ["int8", "int4", "int4 with zeros"])
def test_codes_dequantize_to_what_they_stand_for(kind: str) -> None:
    weight = matrix(kind, 7, 96, 32)
    assert isinstance(weight, Int8 | Int4) and weight.shape == (7, 96)
    torch.testing.assert_close(weight.dequantize().double(), floats(weight))
    torch.testing.assert_close(weight.rows(2, 5).dequantize(), weight.dequantize()[2:5])


def test_the_even_column_is_in_the_lower_half() -> None:
    weight = Int4(torch.tensor([[0x9F, 0x08]], dtype=torch.uint8), torch.tensor([[2.0]]))
    assert weight.dequantize().tolist() == [[14.0, 2.0, 0.0, -16.0]]


def test_parts_that_do_not_fit() -> None:
    codes, scales = torch.zeros(4, 12, dtype=torch.int8), torch.ones(4, 5)
    with pytest.raises(ValueError, match=r"here \(4, a divisor of 12\); these are torch.float32 \(4, 5\)"):
        Int8(codes, scales)
    with pytest.raises(ValueError, match=r"codes are torch\.uint8 of two axes"):
        Int4(codes, scales)
    with pytest.raises(ValueError, match="even number of columns, not 3"):
        Int4(torch.zeros(4, 6, dtype=torch.uint8), torch.ones(4, 4))
    with pytest.raises(ValueError, match="zeros are fp32 and of the shape of scales"):
        Int4(torch.zeros(4, 6, dtype=torch.uint8), torch.ones(4, 3), torch.zeros(4, 2))
