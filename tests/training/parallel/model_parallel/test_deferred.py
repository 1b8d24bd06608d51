"""Weight gradients that are computed later are those of PyTorch's backward pass."""

from __future__ import annotations

import copy

import torch
from torch import nn

from qkv.nn.layers.linear import Linear
from qkv.training.parallel.model_parallel.deferred import compute, defer


def test_gradients_that_were_left_are_those_of_a_plain_backward_pass() -> None:
    plain = nn.Sequential(Linear(3, 5), nn.GELU(), Linear(5, 2)).double()
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    later = copy.deepcopy(plain)
    deferred = defer(later, setattr)
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    (of_plain,) = torch.autograd.grad(plain(x).square().sum(), x)
    with deferred.open() as waiting:
        out = later(x).square().sum()
        out.backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, of_plain)
        weights = [layer.weight for layer in later if isinstance(layer, Linear)]
        assert len(waiting) == 2 and all(weight.grad is None for weight in weights)
    compute(waiting)
    plain(x).square().sum().backward()
    compare(plain, later, 1)
    later(x).square().sum().backward()  # outside of the block nothing is left
    compare(plain, later, 2)


def compare(plain: nn.Module, later: nn.Module, times: int) -> None:
    for one, other in zip(plain.parameters(), later.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(other.grad, times * one.grad)
