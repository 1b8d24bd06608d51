"""Absolute positions: sinusoids by the paper's formulas, and learned tables."""

from __future__ import annotations

import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.positions.absolute import Learned, Sinusoidal
from qkv.nn.positions.base import Position, PositionModule, Widths
from qkv.runs.recipes.recipe import Recipe

WIDTHS = Widths(d_model=32, n_heads=4, d_head=16, max_positions=64)


def fresh(spec: Position, widths: Widths = WIDTHS) -> PositionModule:
    """The scheme's module, whatever it trains drawn anew."""
    module = spec.module(widths)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("offset", [0, 2])
def test_sinusoids_are_the_papers(offset: int) -> None:
    d = 6
    table = Sinusoidal(offset=offset).encode(torch.arange(5), d)
    for p in range(5):
        for i in range(d // 2):
            angle = (p + offset) / 10000 ** (2 * i / d)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("d", [2, 4, 10])
def test_rates_of_tensor2tensor(d: int) -> None:
    """`get_timing_signal_1d` of its code: rates from 1 to exactly 1/10000, sines before cosines."""
    spec, n = Sinusoidal(rates="tensor2tensor", arrangement="concatenated"), d // 2
    rates = [math.exp(-i * math.log(1e4 / 1.0) / max(n - 1, 1)) for i in range(n)]
    expected = [[f(p * rate) for f in (math.sin, math.cos) for rate in rates] for p in range(5)]
    torch.testing.assert_close(spec.encode(torch.arange(5), d), torch.tensor(expected), atol=1e-6, rtol=0)
    assert n == 1 or rates[-1] == pytest.approx(1e-4)
    assert d == 2 or not torch.allclose(spec.replace(rates="paper").encode(torch.arange(5), d), torch.tensor(expected))


def test_concatenated_is_interleaved_in_another_order() -> None:
    positions, d = torch.arange(20), 8
    interleaved = Sinusoidal().encode(positions, d)
    concatenated = Sinusoidal(arrangement="concatenated").encode(positions, d)
    assert torch.equal(concatenated, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1))


@pytest.mark.parametrize("k", [1, 7, 40])
def test_a_shifted_sinusoid_is_a_linear_map_of_the_unshifted(k: int) -> None:
    """PE(p + k) = M_k PE(p) with one M_k for all p: rotations by k · rate of each (sin, cos) pair."""
    d, positions = 16, torch.arange(200)
    shift = torch.zeros(d, d)
    for i in range(d // 2):
        angle = k / 10000 ** (2 * i / d)
        c, s = math.cos(angle), math.sin(angle)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]])
    encode = Sinusoidal().encode
    torch.testing.assert_close(encode(positions + k, d), encode(positions, d) @ shift.T, atol=5e-5, rtol=0)


def test_nearer_sinusoids_have_larger_dot_products() -> None:
    table = Sinusoidal().encode(torch.arange(400), 512)
    for p in (0, 100, 250):
        products = table[p : p + 128] @ table[p]
        assert (products[:3].diff() < 0).all(), "the next positions fall one by one"
        near, middle, far = (products[a:b].mean() for a, b in ((0, 8), (8, 32), (32, 128)))
        assert near > middle > far


def test_padding_of_a_sinusoid_is_finite_and_odd_widths_are_refused() -> None:
    embedded = Sinusoidal().module(WIDTHS).embed(Layout.from_lengths([1, 3], side="left"))
    assert embedded is not None and embedded.isfinite().all()
    with pytest.raises(ValueError, match="an even d_model, not 7"):
        Sinusoidal().module(WIDTHS._replace(d_model=7))


def test_learned_rows_stand_behind_their_offset() -> None:
    module = fresh(Learned(offset=2))
    assert module.weight.shape == (64 + 2, 32)  # type: ignore[union-attr]
    embedded = module.embed(Layout.from_lengths([2, 3], side="left"))
    assert embedded is not None
    assert torch.equal(embedded[1], module.weight[2:5])  # type: ignore[index]
    assert torch.equal(embedded[0, 1:], module.weight[2:4])  # type: ignore[index]
    assert Learned(offset=2).n_parameters(WIDTHS) == sum(p.numel() for p in module.parameters())
    with pytest.raises(ValueError, match="need max_positions"):
        Learned().module(WIDTHS._replace(max_positions=None))


def test_the_advice_on_learned_positions_of_a_preset_without_a_size_for_them_works() -> None:
    settings = ["model.preset=bloom-560m", "model.decoder.position=learned"]
    with pytest.raises(ValueError, match="need max_positions, the most tokens of an input"):
        Recipe.load("lm", settings).spec()
    with pytest.raises(ValueError, match=r"set model\.replace\.max_positions=… in a recipe"):
        Recipe.load("lm", [*settings, "model.max_positions=256"]).spec()
    assert Recipe.load("lm", [*settings, "model.replace.max_positions=256"]).spec().max_positions == 256
