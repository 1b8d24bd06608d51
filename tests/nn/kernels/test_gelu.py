"""GELU in C++: values and gradients beside PyTorch's in float64, and who gets PyTorch's function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.nn.kernels import gelu as module
from qkv.nn.kernels.gelu import gelu, gelu_tanh
from qkv.nn.kernels.native import gelu as native

needs_kernel = pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler")
BOTH = pytest.mark.parametrize(("function", "approximate"), [(gelu, "none"), (gelu_tanh, "tanh")])


@needs_kernel
@BOTH
def test_values_and_gradients(
    function: Callable[[Tensor], Tensor], approximate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST", 1)
    extremes = torch.tensor([0.0, -0.0, 1e-30, 88.0, -88.0, 1e4, -1e4, 3e38, -3e38])
    x = torch.cat([torch.linspace(-12, 12, 9991), extremes]).requires_grad_()
    d = torch.randn(len(x))
    out = function(x)
    assert out.grad_fn is not None and out.grad_fn.name() == "GeluBackward"
    (found,) = torch.autograd.grad(out, x, d)
    wide = x.detach().double().requires_grad_()
    exact = F.gelu(wide, approximate=approximate)
    torch.testing.assert_close(out.double(), exact, rtol=1e-6, atol=2e-6)
    (wanted,) = torch.autograd.grad(exact, wide, d.double())
    torch.testing.assert_close(found.double(), wanted.nan_to_num(), rtol=1e-5, atol=5e-6)


@needs_kernel
@BOTH
def test_nan_and_infinity(
    function: Callable[[Tensor], Tensor], approximate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST", 1)
    x = torch.tensor([float("nan"), float("inf")]).repeat(20)
    found = function(x.requires_grad_()).detach()
    assert torch.equal(found.isnan(), x.isnan()) and bool((found[1::2] == float("inf")).all())


@needs_kernel
def test_gradients_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 1)
    x = torch.randn(33, requires_grad=True)
    found = []
    for function in (gelu, F.gelu):
        (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
