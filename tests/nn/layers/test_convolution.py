"""Convolutions over pictures: PyTorch's own, with the norm over channels; stems halve; costs are those that are counted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from qkv.nn.layers.convolution import DoubleConvolution, PictureConvolution, Stem


@torch.no_grad()
def filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.normal_()
    return module.double()


def counted(module: nn.Module, x: Tensor) -> int:
    """FLOPs of convolutions."""
    with FlopCounterMode(display=False) as counter:
        module(x)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("stride", [1, 2])
def test_it_is_a_convolution_normed_over_its_channels(stride: int) -> None:
    made, x = filled(PictureConvolution(3, 5, stride)), torch.randn(2, 3, 6, 8).double()
    y = F.conv2d(x, made.weight.reshape(5, 3, 3, 3), stride=stride, padding=1)
    mean, var = y.mean(1, keepdim=True), y.var(1, correction=0, keepdim=True)
    gain, shift = (p[:, None, None] for p in (made.norm.weight, made.norm.bias))
    torch.testing.assert_close(made(x), ((y - mean) / (var + 1e-5).sqrt() * gain + shift).relu())


def test_a_picture_depends_on_no_other_and_on_no_memory_format() -> None:
    made, x = filled(DoubleConvolution(3, 4)), torch.randn(3, 3, 6, 8).double()
    alone = torch.cat([made(one[None]) for one in x])
    torch.testing.assert_close(made(x), alone)
    torch.testing.assert_close(made(x.contiguous(memory_format=torch.channels_last)), alone)


@pytest.mark.parametrize("widths", [(4,), (4, 6, 5)])
def test_a_stem_halves_as_often_as_it_has_widths(widths: tuple[int, ...]) -> None:
    made, side = filled(Stem(3, widths)), 2 ** len(widths)
    x = torch.randn(2, 3, 2 * side, 3 * side).double()
    assert made(x).shape == (2, widths[-1], 2, 3)
    cost = Stem.cost(3, widths, patches=6)
    assert cost.parameters == sum(p.numel() for p in made.parameters())
    norms = sum(8 * width * 6 * 4**i for i, width in enumerate(reversed(widths)))
    assert cost.flops - norms == counted(made, x) / 2  # of one picture


def test_two_cost_what_they_are_counted_for() -> None:
    made, x = filled(DoubleConvolution(3, 4)), torch.randn(1, 3, 6, 8).double()
    cost = DoubleConvolution.cost(3, 4, pixels=48)
    assert cost.parameters == sum(p.numel() for p in made.parameters())
    assert cost.flops - 2 * 8 * 4 * 48 == counted(made, x)
