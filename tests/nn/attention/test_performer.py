"""Performer: random directions follow from the seed and the layer, and are saved with the model."""

from __future__ import annotations

import torch

import qkv
from qkv.nn.attention.feature_maps import Favor
from qkv.nn.attention.performer import MultiHeadPerformer, Performer, redraw
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.absolute import NoPosition


def test_random_directions_are_saved_and_redrawn() -> None:
    mixer = Performer(n_heads=4, pattern=causal(), features=Favor(n_features=16))
    spec = qkv.preset("gpt2", n_layers=2, d_model=32, n_heads=4, vocab_size=19, max_positions=64)
    spec = spec.replace({"decoder.position": NoPosition(), "decoder.blocks.*.attention": mixer})
    model, other = qkv.build(spec).eval(), qkv.build(spec, seed=1).eval()
    name = "decoder.blocks.1.attention.directions"
    before = model.state_dict()[name].clone()
    assert torch.equal(before, other.state_dict()[name]), "drawn by the features' seed and the layer's name"
    assert not torch.equal(before, model.state_dict()[name.replace("1", "0")])
    assert redraw(model, seed=5) == 2
    assert not torch.equal(before, model.state_dict()[name])
    ids = torch.zeros(1, 4, dtype=torch.long)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids), other(ids)), "what was redrawn is saved with the model"
    assert name not in dict(model.named_parameters())
    meta = qkv.build(spec, device="meta")
    assert meta.state_dict()[name].is_meta
    assert isinstance(model.decoder.block(0).attention, MultiHeadPerformer)
