"""Waveforms as an input: lengths, padding, and the convolution of positions as PyTorch normalizes its weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.nn.layers.waveform import Waveform

SMALL = Waveform(widths=(6, 5), kernels=(4, 3), strides=(3, 2), positions=4, groups=2)


def filled(spec: Waveform) -> nn.Module:
    torch.manual_seed(0)
    made = spec.module(0, 8).double().eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def test_tokens_are_those_of_the_convolutions() -> None:
    layers = nn.Sequential(*(nn.Conv1d(1, 1, k, s) for k, s in zip(SMALL.kernels, SMALL.strides, strict=True)))
    for length in range(SMALL.shortest, 40):
        assert SMALL.tokens_of(length) == layers(torch.zeros(1, 1, length)).shape[-1]
    assert SMALL.tokens_of(SMALL.shortest - 1) == 0


def test_positions_are_a_convolution_with_a_normalized_weight() -> None:
    """For each offset, a length times a direction of norm 1 over both channels (Salimans & Kingma 2016)."""
    made, h = filled(SMALL).positions, torch.randn(2, 7, 8, dtype=torch.float64)
    direction = made.direction.unflatten(1, (-1, 4))
    weight = made.length * direction / direction.square().sum((0, 1), keepdim=True).sqrt()
    theirs = nn.functional.conv1d(h.mT, weight, made.bias, padding=2, groups=2)[..., :7]
    torch.testing.assert_close(made(h), nn.functional.gelu(theirs).mT)


@pytest.mark.parametrize("features", ["group", "layer"])
def test_a_padded_sound_gives_what_it_gives_alone(features: str) -> None:
    made = filled(SMALL.replace({"features": features}))
    long, short = torch.randn(2, 1, 40, dtype=torch.float64).unbind()
    mask = (torch.arange(40) < torch.tensor([[40], [25]])).double()
    samples, layout = made.lay(torch.stack([long, short])[:, 0] * mask, None, mask)
    together = made(samples, None, layout=layout)
    for row, sound in enumerate((long, short[:, :25])):
        alone = made(*made.lay(sound, None)[:1], None)
        torch.testing.assert_close(together[row, : alone.shape[1]], alone[0])
