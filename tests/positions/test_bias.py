"""Biases as functions: what they give, and the gradient that any scheme has by default."""

from __future__ import annotations

import torch

from qkv.core.layout import Layout
from qkv.positions.bias import Bias
from qkv.positions.schemes import ALiBi, T5Buckets


def test_the_schemes_own_gradient_is_that_of_autograd() -> None:
    scheme, table = T5Buckets(buckets=8, max_distance=20), torch.randn(8, 3, dtype=torch.float64)
    q, k = Layout.full(5, start=2).queries(), Layout.full(9).keys()
    grad = torch.randn(2, 3, 5, 9, dtype=torch.float64)
    (own,) = scheme.bias_grad((table,), q, k, grad)
    assert own is not None
    table.requires_grad_()
    (scheme.bias((table,), q, k) * grad).sum().backward()
    torch.testing.assert_close(own, table.grad)


def test_the_gradient_with_a_layout_for_each_row() -> None:
    scheme, table = T5Buckets(buckets=8, max_distance=20), torch.randn(8, 3, dtype=torch.float64)
    layout = Layout.from_lengths([3, 5], side="left")
    q, k, grad = layout.queries(), layout.keys(), torch.randn(2, 3, 5, 5, dtype=torch.float64)
    (own,) = scheme.bias_grad((table,), q, k, grad)
    assert own is not None
    table.requires_grad_()
    (scheme.bias((table,), q, k) * grad).sum().backward()
    torch.testing.assert_close(own, table.grad)


def test_what_is_not_trained_has_no_gradient() -> None:
    scheme = ALiBi()
    slopes, layout = torch.as_tensor(scheme.slopes(2)), Layout.full(3)
    assert scheme.bias_grad((slopes,), layout.queries(), layout.keys(), torch.ones(1, 2, 3, 3)) == (None,)
    assert not Bias(scheme, (slopes,)).needs_grad


def test_needs_grad_follows_its_tensors_and_the_mode() -> None:
    bias = Bias(T5Buckets(), (torch.zeros(32, 2, requires_grad=True),))
    assert bias.needs_grad
    with torch.no_grad():
        assert not bias.needs_grad
