"""Products with matrices in 8 and 4 bits against float64 and against rounded activations."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.native import products as native
from qkv.nn.kernels.products.formats import Int4, Int8
from qkv.nn.kernels.products.integers import WIDEST, int4_product, int8_product, integer_product, rounded

from .examples import activations, error, exact, matrix

KINDS = ("int8", "int4", "int4 with zeros")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33])
@pytest.mark.parametrize(
    ("columns", "group"), [(64, 32), (768, 64), (384, 128), (256, 256), (96, 32), (100, 20), (6, 2)]
)
def test_codes_give_what_they_stand_for(way: str, kind: str, rows: int, columns: int, group: int) -> None:
    x, weight, bias = activations(rows, columns), matrix(kind, 37, columns, group), torch.randn(37)
    assert isinstance(weight, Int8 | Int4)
    found = (int8_product if isinstance(weight, Int8) else int4_product)(x, weight, bias)
    assert found.dtype == torch.float32 and error(found, exact(x, weight, bias)) <= 2e-6
    short = integer_product(x.bfloat16(), weight, bias.bfloat16(), "float")
    assert short.dtype == torch.bfloat16 and error(short, exact(x.bfloat16(), weight, bias.bfloat16())) < 4e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 16, 300])
@pytest.mark.parametrize(
    ("columns", "group"), [(64, 32), (768, 64), (384, 384), (256, 32), (256, 128), (512, 256), (320, 32), (320, 64)]
)
def test_activations_in_8_bits(way: str, kind: str, rows: int, columns: int, group: int) -> None:
    x, weight = activations(rows, columns), matrix(kind, 21, columns, group)
    x = torch.cat([x, torch.zeros(1, columns)])  # a row without a scale
    assert isinstance(weight, Int8 | Int4)
    found = integer_product(x, weight, None, "int8")
    assert error(found, exact(_in_8_bits(x), weight)) < 2e-6
    assert 1e-5 < error(found, exact(x, weight)) < 0.1


@pytest.mark.parametrize("rows", [32, 37, 261])
@pytest.mark.parametrize("outs", [1, 16, 17, 40, 64])
@pytest.mark.parametrize("columns", [32, 96, 512, 1056])
def test_panels_of_8_bits(way: str, rows: int, outs: int, columns: int) -> None:
    x, weight, bias = activations(rows, columns), matrix("int8", outs, columns, columns), torch.randn(outs)
    assert isinstance(weight, Int8)
    found = int8_product(x, weight, bias, "int8")
    assert error(found, exact(_in_8_bits(x), weight, bias)) < 2e-6
    each = torch.cat([int8_product(row[None], weight, bias, "int8") for row in x])
    torch.testing.assert_close(found, each, rtol=3e-6, atol=3e-6 * float(found.abs().max()))


@pytest.mark.parametrize(
    ("kind", "columns", "group"),
    [("int8", 96, 96), *((k, c, g) for k in KINDS[1:] for c, g in [(64, 32), (384, 128), (320, 64), (192, 192)])],
)
def test_products_of_integers_have_one_order_of_sums(calls: list[int], kind: str, columns: int, group: int) -> None:
    """A row's product is the same to the bit alone and beside any number of other rows, in every order that is asked for."""
    x, weight, bias = activations(27, columns), matrix(kind, 37, columns, group), torch.randn(37)
    assert isinstance(weight, Int8 | Int4)
    for order in (native.FEW, native.PANELS):
        with torch.no_grad(), native.in_one_order(order):
            whole = integer_product(x, weight, bias, "int8")
            parts = [
                torch.cat([integer_product(own, weight, bias, "int8") for own in x.split(n)]) for n in (1, 3, 12, 13)
            ]
        assert error(whole, exact(_in_8_bits(x), weight, bias)) < 2e-6
        assert all(torch.equal(whole, part) for part in parts)


def _in_8_bits(x: torch.Tensor) -> torch.Tensor:
    """Each row in steps of 1/127 of its largest number, in float64 except for the rounding itself."""
    scales = (x.abs().amax(1, keepdim=True) / 127).clamp(min=1e-30)
    return (x / scales).round().double() * scales.double()


def test_the_extreme_codes(way: str) -> None:
    """−128 and 127 times −127 and 127, whose sums of pairs come near the limits of 16 bits."""
    codes = torch.tensor([-128, 127], dtype=torch.int8).repeat_interleave(32).repeat(2)
    weight = Int8(torch.stack([codes, -codes - 1]), torch.ones(2, 4))
    x = torch.stack([torch.full((128,), 127.0), torch.full((128,), -127.0)])
    assert torch.equal(int8_product(x, weight, activations="int8").double(), exact(x, weight))
    four = Int4(torch.full((2, 64), 255, dtype=torch.uint8), torch.ones(2, 4))
    assert torch.equal(int4_product(x, four, activations="int8").double(), exact(x, four))


def test_sums_of_the_widest_matrix_fit(way: str) -> None:
    weight = Int8(torch.full((4, WIDEST), -128, dtype=torch.int8), torch.ones(4, 1))
    x = torch.full((1, WIDEST), -127.0)
    assert int8_product(x, weight, activations="int8").tolist() == [[127.0 * 128 * WIDEST] * 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_in_its_row(way: str, kind: str, bad: float) -> None:
    x, weight = activations(3, 64), matrix(kind, 5, 64)
    assert isinstance(weight, Int8 | Int4)
    x[1, 40] = bad
    for how in ("float", "int8"):
        found = integer_product(x, weight, None, how)  # type: ignore[arg-type]
        assert not found[1].isfinite().any() and found[[0, 2]].isfinite().all()


def test_rounded_activations_are_rounded_already() -> None:
    x = activations(3, 96)
    torch.testing.assert_close(rounded(rounded(x)), rounded(x))


def test_what_does_not_fit_is_told() -> None:
    weight = matrix("int8", 4, 100, 20)
    assert isinstance(weight, Int8)
    with pytest.raises(ValueError, match=r"a multiple of 32 columns and at most 131,072 columns; this .* groups of 20"):
        int8_product(torch.ones(1, 100), weight, activations="int8")
    four = matrix("int4", 4, 192, 96)
    assert isinstance(four, Int4)
    with pytest.raises(
        ValueError, match=r"groups of 32, or a multiple of 64 columns and .*; this matrix has groups of 96"
    ):
        int4_product(torch.ones(1, 192), four, activations="int8")
    with pytest.raises(ValueError, match=r"activations have 99 columns, and the matrix is for 100"):
        int8_product(torch.ones(1, 99), weight)


def test_gradients_of_activations() -> None:
    x, weight = activations(2, 64).requires_grad_(), matrix("int4", 5, 64)
    assert isinstance(weight, Int4)
    int4_product(x, weight).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, weight.dequantize().sum(0).expand(2, -1))
