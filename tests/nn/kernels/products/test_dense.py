"""Products with matrices in fp32 and bf16 against float64, and everything that must see PyTorch's operators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from qkv.nn.kernels.native import products as native
from qkv.nn.kernels.products.dense import dense_product

from .examples import activations, error, exact, matrix

SHAPES = [(64, 48), (768, 37), (100, 5), (3, 9), (1, 1), (1030, 130)]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 16, 32, 33])
@pytest.mark.parametrize(("columns", "outs"), SHAPES)
def test_fp32_within_rounding_of_float64(way: str, rows: int, columns: int, outs: int) -> None:
    x, weight, bias = activations(rows, columns), matrix("fp32", outs, columns), torch.randn(outs)
    assert isinstance(weight, Tensor)
    for own in (None, bias):
        assert error(dense_product(x, weight, own), exact(x, weight, own)) <= 1e-6


@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize(("columns", "outs"), SHAPES)
def test_bf16_is_rounded_once(way: str, rows: int, columns: int, outs: int) -> None:
    x, weight, bias = activations(rows, columns).bfloat16(), matrix("bf16", outs, columns), torch.randn(outs).bfloat16()
    assert isinstance(weight, Tensor)
    found, wanted = dense_product(x, weight, bias), exact(x, weight, bias)
    assert found.dtype == torch.bfloat16 and found.shape == (rows, outs)
    if way == "native":
        assert (found.double() - wanted).abs().le(wanted.abs() * 2**-8 + 1e-4).all()
    else:
        assert error(found, wanted) < 1e-2


@pytest.mark.parametrize("rows", [32, 37, 250])
@pytest.mark.parametrize("outs", [1, 16, 17, 40, 64])
@pytest.mark.parametrize("columns", [32, 96, 768])
def test_panels_of_bf16(way: str, rows: int, outs: int, columns: int) -> None:
    x, weight, bias = activations(rows, columns).bfloat16(), matrix("bf16", outs, columns), torch.randn(outs).bfloat16()
    assert isinstance(weight, torch.Tensor)
    assert error(dense_product(x, weight, bias), exact(x, weight, bias)) < 4e-3


def test_every_bf16_pattern_and_ties_are_rounded_as_in_pytorch(calls: list[int]) -> None:
    """One column and a bias: each output is a sum in fp32 that is rounded once."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    weight, x, bias = every[:, None].contiguous(), torch.ones(1, 1, dtype=torch.bfloat16), every.roll(77)
    with torch.no_grad():
        found = dense_product(x, weight, bias)[0]
    wanted = (every.float() + bias.float()).bfloat16()
    assert calls == [1] and torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


def test_leading_axes_and_strides(way: str) -> None:
    x, weight = activations(24, 64).view(2, 12, 64)[:, ::4], matrix("fp32", 20, 64)
    assert isinstance(weight, Tensor) and not x.is_contiguous()
    found = dense_product(x, weight)
    assert found.shape == (2, 3, 20) and error(found.flatten(0, 1), exact(x.flatten(0, 1), weight)) <= 1e-6
    turned = weight[:, :20].T
    assert error(dense_product(x[..., :20], turned).flatten(0, 1), exact(x[..., :20].flatten(0, 1), turned)) <= 1e-6
    assert dense_product(x[:0], weight).shape == (0, 3, 20)


def test_many_threads_give_the_same(calls: list[int]) -> None:
    x, weight = activations(5, 512), matrix("fp32", 1001, 512)
    assert isinstance(weight, Tensor)
    before, found = torch.get_num_threads(), []
    try:
        with torch.no_grad():
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                found.append(dense_product(x, weight))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2]) and calls == [1, 1, 1]


@pytest.mark.parametrize("columns", [64, 100])
def test_a_row_does_not_depend_on_the_others(calls: list[int], columns: int) -> None:
    x, weight = activations(16, columns), matrix("fp32", 50, columns)
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        alone = torch.cat([dense_product(row, weight) for row in x.split(1)])
        assert all(error(dense_product(x[:n], weight), alone[:n]) < 2e-7 for n in (2, 3, 5, 8, 16))


def test_training_is_pytorchs(calls: list[int]) -> None:
    x, weight = activations(2, 64), matrix("fp32", 8, 64)
    assert isinstance(weight, Tensor)
    weight.requires_grad_()
    dense_product(x, weight).sum().backward()
    assert weight.grad is not None and not calls


def test_what_watches_or_traces_operators_sees_them(calls: list[int]) -> None:
    x, weight = activations(2, 64), matrix("fp32", 8, 64)
    assert isinstance(weight, Tensor)
    wanted = F.linear(x, weight)
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            dense_product(x, weight)
        assert counter.get_total_flops() == 2 * 2 * 64 * 8
        torch.testing.assert_close(torch.vmap(dense_product, (0, None))(x, weight), wanted)
        _, tangent = torch.func.jvp(lambda y: dense_product(y, weight), (x,), (torch.ones_like(x),))
        torch.testing.assert_close(tangent, F.linear(torch.ones_like(x), weight))
        with torch.autocast("cpu", torch.bfloat16):
            assert dense_product(x, weight).dtype == torch.bfloat16
        compiled = torch.compile(dense_product, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, weight), wanted)
        exported = torch.export.export(Product(weight), (x,))
        assert "linear" in str(exported.graph)
        assert dense_product(x.to("meta"), weight.to("meta")).shape == (2, 8)
        traced = torch.jit.trace(Product(weight), x, check_trace=False)
        torch.testing.assert_close(traced(2 * x), 2 * wanted)
    assert not calls


class Product(torch.nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return dense_product(x, self.weight)


def test_what_kernels_do_not_take_is_pytorchs(calls: list[int]) -> None:
    weight = matrix("fp32", 8, 64)
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        many = activations(native.MOST[torch.float32] + 1, 64)
        torch.testing.assert_close(dense_product(many, weight), F.linear(many, weight))
        double = activations(2, 64).double()
        assert torch.equal(dense_product(double, weight.double()), F.linear(double, weight.double()))
        with pytest.raises(RuntimeError):
            dense_product(activations(2, 63), weight)
        with pytest.raises(RuntimeError):
            dense_product(activations(2, 64), weight, torch.zeros(3))
    assert not calls
