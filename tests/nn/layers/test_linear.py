"""The one linear layer."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from qkv.nn.layers.linear import Linear, together
from qkv.nn.layers.lora import AdapterSize, LoRALinear


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


@pytest.mark.parametrize("rows", [1, 5])
def test_layers_together_are_each_alone(rows: int) -> None:
    layers, x = [filled(Linear(32, d_out, bias=d_out > 8)) for d_out in (16, 8, 40)], torch.randn(rows, 32)
    with torch.no_grad():
        for out, layer in zip(together(x, *layers), layers, strict=True):
            torch.testing.assert_close(out, F.linear(x, layer.weight, layer.bias))
    for out, layer in zip(together(x, *layers), layers, strict=True):
        assert torch.equal(out, F.linear(x, layer.weight, layer.bias)) and out.requires_grad


def test_hooks_and_other_layers_are_called() -> None:
    plain, hooked, other = filled(Linear(32, 8)), filled(Linear(32, 8)), filled(Linear(32, 8))
    hooked.register_forward_hook(lambda module, inputs, out: 2 * out)
    other.forward = lambda x: x[..., :3]  # type: ignore[method-assign]
    adapted, x = LoRALinear(filled(Linear(32, 8)), AdapterSize(2, 1.0)), torch.randn(1, 32)
    for factor in (adapted.lora_a, adapted.lora_b):
        torch.nn.init.normal_(factor)
    with torch.no_grad():
        for layer in (hooked, other, adapted, torch.nn.Identity()):
            one, two = together(x, plain, layer)
            torch.testing.assert_close(one, plain(x))
            torch.testing.assert_close(two, layer(x))


def filled(layer: Linear) -> Linear:
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer
