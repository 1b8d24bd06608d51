"""Products of the same rows with several matrices: one call if they are alike, the same results everywhere."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.products.several import product, products

from .examples import activations, matrix

KINDS = ["fp32", "int8", "int4", "int4 with zeros"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5])
def test_several_are_each_alone(way: str, kind: str, rows: int) -> None:
    x, weights = activations(rows, 128), [matrix(kind, outs, 128, seed=outs) for outs in (40, 3, 130)]
    biases = [torch.randn(40), None, torch.randn(130)]
    found = products(x, weights, biases)
    for one, weight, bias in zip(found, weights, biases, strict=True):
        assert torch.equal(one, product(x, weight, bias))


def test_alike_ones_take_one_call(calls: list[int]) -> None:
    x = activations(1, 64)
    with torch.no_grad():
        for kind in KINDS:
            products(x, [matrix(kind, 8, 64), matrix(kind, 9, 64)], [None, None], "int8")
        assert calls == [2] * len(KINDS)
        calls.clear()
        products(x, [matrix("int8", 8, 64), matrix("int8", 9, 64, 64)], [None, None])
        products(x, [matrix("int8", 8, 64), matrix("fp32", 9, 64)], [None, None])
        assert calls == [1, 1, 1, 1]


def test_formats_may_differ(way: str) -> None:
    x, kinds = activations(2, 64), ["fp32", "int8", "int4"]
    weights = [matrix(kind, 8, 64) for kind in kinds]
    for one, weight in zip(products(x, weights, [None] * 3), weights, strict=True):
        torch.testing.assert_close(one, product(x, weight))
