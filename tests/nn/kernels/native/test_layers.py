"""Products from panels apply activations and add to what is there, in every format of weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.nn.kernels.native import products as native
from qkv.nn.kernels.native.layers import ACTIVATIONS

IDENTITY = ACTIVATIONS.index("identity")
FUNCTIONS = {
    "identity": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu-quick": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu-squared": lambda x: F.relu(x) ** 2,
}


def by_panels(x: Tensor, matrix: native.Matrix, y: Tensor, activation: int, adds: bool) -> Tensor:
    """y, or y and what is added to it."""
    codes, bias, scales, _ = matrix
    kernel, outs, depth = native._kernel(), len(codes), x.shape[1]
    assert kernel is not None
    integer, half = codes.dtype == torch.int8, x.dtype == torch.bfloat16
    sizes = native._sizes(1, len(x), depth, depth, native.KINDS[codes.dtype], half, integer, 2, activation, adds)
    library = native.library("products")
    assert library is not None
    if not library.qkv_by_panels(sizes):
        pytest.skip("this processor has no instructions for such panels")
    scale = None if scales is None else scales.data_ptr()
    kernel(
        x.data_ptr(), y.data_ptr(), native._weights(codes.data_ptr(), scale, None, bias.data_ptr(), outs, False), sizes
    )
    return y


def example(kind: str, rows: int, outs: int = 70, depth: int = 96) -> tuple[Tensor, native.Matrix, Tensor]:
    """Activations, a matrix, and their product in double precision."""
    random = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, depth, generator=random), torch.randn(outs, depth, generator=random)
    bias = torch.randn(outs, generator=random)
    if kind == "int8":
        codes = torch.randint(-127, 128, (outs, depth), generator=random, dtype=torch.int8)
        scales = torch.rand(outs, 1, generator=random) / 100
        factors = x.abs().amax(1, keepdim=True) / 127
        exact = ((x / factors).round() * factors).double() @ (codes.double() * scales.double()).T + bias.double()
        return x, native.Matrix(codes, bias, scales), exact
    if kind == "bf16":
        x, weight = x.bfloat16(), weight.bfloat16()
    return x, native.Matrix(weight, bias), x.double() @ weight.double().T + bias.double()


@pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")
@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("rows", [32, 33, 47, 256])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_sums(kind: str, rows: int, adds: bool, name: str) -> None:
    x, matrix, exact = example(kind, rows)
    y = torch.randn(rows, len(matrix.codes)).to(x.dtype)
    wanted = FUNCTIONS[name](exact) + (y.double() if adds else 0.0)
    found = by_panels(x, matrix, y.clone(), ACTIVATIONS.index(name), adds)
    tolerance = {"fp32": 2e-5, "bf16": 1e-2, "int8": 2e-5}[kind]
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance * 20)


@pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")
def test_gelu_is_as_exact_as_pytorchs() -> None:
    x = torch.linspace(-12, 12, 64 * 256).view(64, 256)
    found = by_panels(
        x, native.Matrix(torch.eye(256), torch.zeros(256)), torch.empty_like(x), ACTIVATIONS.index("gelu"), False
    )
    exact = F.gelu(x.double())
    assert (found.double() - exact).abs().max() < 1.5e-6
    assert (found[x < -6] == 0.0).all() and torch.equal(found[x > 6], x[x > 6])
