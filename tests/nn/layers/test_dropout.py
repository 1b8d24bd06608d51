"""Dropout: the right share, the right scale, the same mask back, and PyTorch's generator."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from qkv.core.ranks import BatchSplit, splitting
from qkv.nn.layers.dropout import dropout, dropout_of_vectors


@given(st.floats(0.01, 0.95), st.integers(0, 5))
def test_share_and_scale(p: float, seed: int) -> None:
    torch.manual_seed(seed)
    y = dropout(torch.ones(40_001), p)
    kept = y != 0
    assert abs(1 - kept.float().mean().item() - p) < 5 * (p * (1 - p) / 40_001) ** 0.5 + 1e-4
    assert torch.allclose(y[kept], torch.tensor(1 / (1 - p)), rtol=1e-2 if p > 0.9 else 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_backward_takes_the_same_mask(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 7, dtype=dtype, requires_grad=True)
    y = dropout(x, 0.5)
    y.backward(torch.ones_like(y))
    assert y.dtype == x.dtype and x.grad is not None
    assert torch.equal(y, x.detach() * x.grad)
    assert set(x.grad.unique().tolist()) == {0.0, 2.0}


def test_the_gradient_has_a_gradient() -> None:
    x = torch.randn(4, 5, 16, requires_grad=True)
    y = dropout(x.sin(), 0.5)
    mask = (y / x.sin()).detach()

    def twice(y: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    torch.testing.assert_close(twice(y), twice(x.sin() * mask), rtol=1e-4, atol=1e-4)


def test_a_transposed_tensor_has_the_gradient_of_its_mask() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    y = dropout(x.T, 0.5)
    y.sum().backward()
    assert x.grad is not None and torch.equal(y, x.T * x.grad.T)


def test_without_dropout_the_input_is_returned() -> None:
    x = torch.randn(10)
    assert dropout(x, 0.5, training=False) is x and dropout(x, 0.0) is x


def test_seeded_by_the_default_generator() -> None:
    x = torch.randn(1000)
    torch.manual_seed(3)
    first = dropout(x, 0.3)
    between = dropout(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.3)) and not torch.equal(first, between)


def test_neighbors_are_independent() -> None:
    torch.manual_seed(0)
    kept = (dropout(torch.ones(1 << 18), 0.3) != 0).float() - 0.7
    for lag in (1, 2, 3, 4, 8):
        assert abs((kept[:-lag] * kept[lag:]).mean().item()) < 5 * 0.21 / 512


def test_recomputation_draws_the_same_mask() -> None:
    x = torch.randn(64, requires_grad=True)
    torch.manual_seed(1)
    y = checkpoint(lambda t: dropout(t, 0.5) * 3, x, use_reentrant=False)
    y.sum().backward()
    assert x.grad is not None and torch.allclose(y.detach(), x.detach() * x.grad)


def test_compiled_is_dropout_too() -> None:
    torch.manual_seed(0)
    y = torch.compile(lambda t: dropout(t, 0.25), backend="aot_eager")(torch.ones(4000))
    assert abs((y == 0).float().mean().item() - 0.25) < 0.05


def test_a_sum_is_the_same_in_one_pass() -> None:
    x, y = torch.randn(3, 5, 70, requires_grad=True), torch.randn(3, 5, 70).bfloat16().requires_grad_()
    torch.manual_seed(2)
    at_once = dropout(y, 0.3, added=x)
    torch.manual_seed(2)
    apart = x + dropout(y.float(), 0.3)
    torch.testing.assert_close(at_once, apart)
    grads = [torch.autograd.grad(out.square().sum(), (x, y)) for out in (at_once, apart)]
    torch.testing.assert_close(*grads)
    assert dropout(y, 0.0, added=x).equal(x + y)


def test_tensors_without_contents_allocate_what_others_do() -> None:
    with FakeTensorMode():
        x, y = torch.randn(3, 5, 64, requires_grad=True), torch.randn(3, 5, 64)
        out = dropout(x, 0.3, added=y)
        (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.shape == grad.shape == (3, 5, 64) and "native_dropout" not in str(out.grad_fn)


def test_a_rank_drops_of_its_vectors_what_one_rank_drops() -> None:
    x = torch.randn(5, 40)
    torch.manual_seed(4)
    whole = dropout_of_vectors(x, 0.5)
    torch.manual_seed(4)
    with splitting(BatchSplit(first_row=2)):
        part = dropout_of_vectors(x[2:], 0.5)
    assert torch.equal(part, whole[2:]) and not torch.equal(whole[0] == 0, whole[1] == 0)


def test_an_empty_tensor_keeps_its_shape() -> None:
    assert dropout(torch.empty(0, 3), 0.5).shape == (0, 3)
