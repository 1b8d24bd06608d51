"""Exact ablation: the loss without a head or a layer, against models from which it was removed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.pruning.ablation import head_ablation, layer_ablation
from qkv.nn.pruning.remove import remove_heads, remove_layers
from qkv.nn.pruning.units import attention_layers

IDS = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(0))


def model() -> nn.Module:
    spec = preset("gpt2", vocab_size=11, d_model=12, n_layers=3, n_heads=3, max_positions=16)
    return build(spec, seed=0, dtype=torch.float64).eval()


def loss(model: nn.Module) -> float:
    return float(nn.functional.cross_entropy(model(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()))


def test_the_cost_of_a_head_is_the_loss_without_it():
    whole = model()
    told: list[str] = []
    found = head_ablation(whole, loss, attention_layers(whole), told.append)
    for name, losses in found.items():
        for head, cost in enumerate(losses.tolist()):
            with torch.no_grad():
                expected = loss(remove_heads(whole, {name: [head]})) - loss(whole)
            assert cost == pytest.approx(expected, abs=1e-6)
    assert told[0] == "decoder.0, head 0" and len(told) == 9


def test_the_cost_of_a_layer_is_the_loss_without_it():
    whole = model()
    found = layer_ablation(whole, loss, {"decoder": 3})
    for i, cost in enumerate(found["decoder"].tolist()):
        with torch.no_grad():
            expected = loss(remove_layers(whole, {"decoder": [i]})) - loss(whole)
        assert cost == pytest.approx(expected, abs=1e-6)
