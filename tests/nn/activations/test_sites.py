"""Names of activations: complete, in the order of computation, and nothing that a mechanism does not have."""

from __future__ import annotations

import pytest
from torch import nn

from qkv.io.families import preset
from qkv.nn.activations.sites import select, sites
from qkv.nn.models.build import build

LAYER = [
    "input",
    "attention.input",
    "attention.q",
    "attention.k",
    "attention.v",
    "attention.scores",
    "attention.weights",
]
LAYER += ["attention.heads", "attention", "feedforward.input", "feedforward.neurons", "feedforward", "output"]


def test_names_of_a_decoder():
    model = build(preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16), seed=0)
    layers = [f"decoder.layers.{i}.{name}" for i in (0, 1) for name in LAYER]
    assert list(sites(model)) == ["decoder.embedding", *layers, "decoder.output", "logits"]


def test_shared_blocks_have_a_name_for_each_layer():
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=1, n_heads=2, max_positions=16)
    model = build(spec.replace({"decoder.order": (0, 0, 0)}), seed=0)
    names = list(sites(model))
    assert [name for name in names if name.endswith("attention.heads")] == [
        f"decoder.layers.{i}.attention.heads" for i in range(3)
    ]


def test_cross_attention_of_an_encoder_decoder():
    model = build(preset("transformer", vocab_size=11, d_model=8, n_layers=1, n_heads=2, d_ff=16), seed=0)
    names = sites(model)
    assert "decoder.layers.0.cross.weights" in names
    assert "encoder.layers.0.cross" not in names


def test_linear_attention_has_heads_and_no_weights():
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=1, n_heads=2, max_positions=16)
    attention = {"kind": "linear-attention", "n_heads": 2, "pattern": {"kind": "causal"}}
    names = sites(build(spec.replace({"decoder.blocks.0.attention": attention}), seed=0))
    assert "decoder.layers.0.attention.heads" in names
    assert "decoder.layers.0.attention.weights" not in names


def test_a_mixture_has_no_neurons():
    model = build(_mixture(), seed=0)
    assert not [name for name in sites(model) if name.endswith("neurons")]


def _mixture():
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=1, n_heads=2, max_positions=16)
    return spec.replace({"decoder.blocks.0.feedforward": {"kind": "moe", "n_experts": 4, "d_ff": 8}})


def test_other_models_have_the_outputs_of_their_modules():
    model = build(preset("rnnsearch", vocab_size=11, d_e=6, d_h=6, d_s=6), seed=0)
    names = sites(model)
    assert {"source_embedding", "decoder.readout", "head", "decoder.cross.weights"} <= set(names)
    assert not names["decoder.cross.weights"].changeable


def test_a_name_that_is_not_there_gets_the_nearest():
    model: nn.Module = build(preset("gpt2", vocab_size=11, d_model=8, n_layers=1, n_heads=2, max_positions=16), seed=0)
    with pytest.raises(
        ValueError, match=r"no activation 'decoder.layers.0.attention.head'; did you mean 'decoder.layers.0"
    ):
        list(select(sites(model), ["decoder.layers.0.attention.head"]))
    with pytest.raises(ValueError, match=r"no activation 'encoder\.\*'"):
        list(select(sites(model), ["encoder.*"]))
