"""What the tap recorded, recomputed: weights that are distributions, of the layers, heads and rows asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qkv.io.families import preset
from qkv.look import attention_maps
from qkv.nn.models.build import build


@pytest.fixture(scope="module")
def translator() -> nn.Module:
    spec = preset("transformer", vocab_size=20, d_model=16, n_layers=2, n_heads=2, d_ff=32, dropout=0.3)
    return build(spec, seed=0)


SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 8, 9]])


def test_cross_attention_is_one_distribution_a_row(translator: nn.Module):
    maps = attention_maps.attention(translator, SOURCE, TARGET, choose=attention_maps.cross)
    assert [m.name for m in maps] == ["decoder.blocks.0.cross", "decoder.blocks.1.cross"]
    for m in maps:
        assert m.weights.shape == (1, 2, 3, 5)
        torch.testing.assert_close(m.weights.sum(-1), torch.ones(1, 2, 3))
        torch.testing.assert_close(m.mean(), m.weights.mean(1))


def test_a_decoder_sees_nothing_of_what_comes_later(translator: nn.Module):
    maps = attention_maps.attention(
        translator, SOURCE, TARGET, choose=lambda r: r.name.startswith("decoder") and attention_maps.own(r)
    )
    assert len(maps) == 2
    assert all(torch.equal(m.weights, m.weights.tril()) for m in maps)


def test_only_the_heads_and_rows_asked_for(translator: nn.Module):
    whole = attention_maps.attention(translator, SOURCE, TARGET, choose=attention_maps.cross)[-1].weights
    part = attention_maps.attention(translator, SOURCE, TARGET, choose=attention_maps.cross, heads=[1], rows=[0, 2])[
        -1
    ].weights
    torch.testing.assert_close(part, whole[:, [1]][:, :, [0, 2]])


def test_looking_changes_neither_output_nor_mode(translator: nn.Module):
    translator.train()
    attention_maps.attention(translator, SOURCE, TARGET)
    assert translator.training
    translator.eval()
    before: Tensor = translator(SOURCE, TARGET)
    attention_maps.attention(translator, SOURCE, TARGET)
    assert not translator.training
    assert torch.equal(before, translator(SOURCE, TARGET))
