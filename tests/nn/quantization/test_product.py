"""Products with quantized matrices equal those with the dequantized ones, with their gradients."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.quantization import product as module
from qkv.nn.quantization.formats import Packed, format_of
from qkv.nn.quantization.methods.rtn import rtn
from qkv.nn.quantization.product import product, quantized_tokens

NAMES = ("int8", "int4", "nf4", "fp8", "mxfp4")


def packed(name: str, rows: int = 10, columns: int = 64) -> Packed:
    w = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    return rtn(w, format_of(name), 32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [1 << 20, 200])
def test_values_and_gradients(name: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    matrix, bias = packed(name), torch.randn(10)
    x = torch.randn(2, 3, 64, requires_grad=True)
    y = product(x, matrix, bias)
    expected = x @ matrix.dense().T + bias
    torch.testing.assert_close(y, expected)
    weights = torch.randn_like(y)
    (grad,) = torch.autograd.grad((y * weights).sum(), x)
    (reference,) = torch.autograd.grad((expected * weights).sum(), x)
    torch.testing.assert_close(grad, reference)


def test_columns_in_another_order() -> None:
    matrix, x = packed("int4"), torch.randn(3, 64)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(2)).int()
    shuffled = Packed(matrix.format, matrix.shape, matrix.codes, matrix.scales, None, order)
    torch.testing.assert_close(product(x, shuffled), x @ shuffled.dense().T)
    assert torch.equal(shuffled.dense()[:, order.long()], matrix.dense())


def test_autocast() -> None:
    x = torch.randn(3, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = product(x, packed("nf4"))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32


@pytest.mark.parametrize("groups", [32, 64])
def test_int8_activations(groups: int) -> None:
    w = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    matrix = rtn(w, format_of("int8"), groups)
    x = torch.randn(5, 64) * torch.tensor([1.0, 100.0, 1e-3, 5.0, 0.0])[:, None]
    codes, scales = quantized_tokens(x)
    expected = (codes.float() * scales) @ matrix.dense().T
    torch.testing.assert_close(product(x, matrix, None, "int8"), expected, rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    y = product(x, matrix, None, "int8")
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    y.sum().backward()
    torch.testing.assert_close(x.grad, matrix.dense().sum(0).expand(5, -1))  # straight through the rounding


def test_fp8_activations_are_numbers_of_fp8() -> None:
    matrix, x = packed("fp8"), torch.randn(4, 64)
    scales = x.abs().amax(-1, keepdim=True) / 448
    near = (x / scales).to(torch.float8_e4m3fn).float() * scales
    torch.testing.assert_close(product(x, matrix, None, "fp8"), near @ matrix.dense().T)
