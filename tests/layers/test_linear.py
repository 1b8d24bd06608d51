"""The one linear layer."""

from __future__ import annotations

import torch

from qkv.layers.linear import Linear


def test_the_equation_with_and_without_bias() -> None:
    for bias in (True, False):
        layer = Linear(4, 3, bias)
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
        x = torch.randn(2, 5, 4)
        expected = torch.einsum("bti,oi->bto", x, layer.weight)
        torch.testing.assert_close(layer(x), expected + layer.bias if layer.bias is not None else expected)
        assert len(list(layer.parameters())) == 1 + bias


def test_it_marks_what_writes_to_the_residual_stream() -> None:
    assert Linear(2, 2, into_residual=True).into_residual and not Linear(2, 2).into_residual
