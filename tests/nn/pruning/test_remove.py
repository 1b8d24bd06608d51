"""Removed heads, neurons and layers: the smaller model computes what the old one does without them, in every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from prunable_models import FAMILIES, IDS, SMALL, TARGET, inputs, stirred

import qkv
from qkv.io.families import preset
from qkv.nn.activations import Zero, intervene
from qkv.nn.models.build import build
from qkv.nn.pruning.remove import remove_heads, remove_layers, remove_neurons
from qkv.nn.pruning.units import attention_layers


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_without_heads_computes_as_with_zeroed_heads(name: str, tmp_path: Path):
    spec, heads = FAMILIES[name]
    model = stirred(spec)
    layers = attention_layers(model)
    with intervene(model, {layers[layer].site: Zero(heads=some) for layer, some in heads.items()}):
        expected = model(*inputs(model))
    smaller = remove_heads(model, heads)
    torch.testing.assert_close(smaller(*inputs(model)), expected, rtol=1e-9, atol=1e-9)
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in model.parameters())
    assert smaller.spec.cost().parameters == sum(p.numel() for p in smaller.parameters())
    assert not torch.allclose(model(*inputs(model)), expected)  # the original is unchanged, and the heads matter


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "bert"])
def test_smaller_models_decode_with_caches_of_fewer_heads(name: str):
    spec, heads = FAMILIES[name]
    model = remove_heads(stirred(spec), heads)
    target = TARGET if model.is_encoder_decoder else IDS
    whole = model(*inputs(model))
    cache = model.start(source=IDS) if model.is_encoder_decoder else model.start(len(IDS))
    steps = torch.stack([model.step(target[:, t : t + 1], cache) for t in range(target.shape[1])], 1)
    torch.testing.assert_close(steps, whole, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_removing_twice_is_removing_at_once():
    spec, _ = FAMILIES["alibi"]
    model = stirred(spec)
    once = remove_heads(model, {"decoder.0": [1, 4]})
    twice = remove_heads(remove_heads(model, {"decoder.0": [1]}), {"decoder.0": [3]})
    assert once.spec == twice.spec
    assert torch.equal(once(IDS), twice(IDS))


@torch.no_grad()
@pytest.mark.parametrize("name", ["alibi", "t5", "llama-gqa"])
def test_smaller_models_are_saved_and_loaded(name: str, tmp_path: Path):
    spec, heads = FAMILIES[name]
    model = remove_heads(stirred(spec).float(), heads)
    from qkv.io.directories.save import save

    save(model, tmp_path, "qkv")
    loaded = qkv.load(tmp_path).model
    assert loaded.spec == model.spec
    torch.testing.assert_close(loaded(*inputs(model)), model(*inputs(model)))


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "transformer"])
def test_a_model_without_neurons_computes_as_with_zeroed_neurons(name: str):
    model = stirred(FAMILIES[name][0])
    stack = "decoder"
    with intervene(model, {f"{stack}.layers.1.feedforward.neurons": Zero(features=[0, 7])}):
        expected = model(*inputs(model))
    smaller = remove_neurons(model, {"decoder.1": [0, 7]})
    torch.testing.assert_close(smaller(*inputs(model)), expected, rtol=1e-9, atol=1e-9)
    assert smaller.spec.decoder.blocks[1].feedforward.d_ff == model.spec.decoder.blocks[1].feedforward.d_ff - 2


@torch.no_grad()
def test_without_a_layer():
    spec = preset("gpt2", **{**SMALL, "n_layers": 3}, max_positions=16)
    model = stirred(spec)
    held: list[torch.Tensor] = []
    changes = {
        "decoder.layers.1.input": lambda x: held.append(x) or x,
        "decoder.layers.1.output": lambda x: held[-1],
    }
    with intervene(model, changes):
        expected = model(IDS)
    smaller = remove_layers(model, {"decoder": [1]})
    assert len(smaller.spec.decoder.blocks) == 2
    torch.testing.assert_close(smaller(IDS), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("neurons", "message"),
    [
        ({"decoder.0": range(96)}, "all 96 neurons of decoder.0 would be removed"),
        ({"decoder.0": [96]}, "decoder.0 has neurons 0 to 95; there is no 96"),
        ({"decoder.5": [0]}, "no feed-forward layer 'decoder.5' with neurons to remove; did you mean"),
    ],
)
def test_neurons_that_cannot_be_removed(neurons: dict[str, list[int]], message: str):
    with pytest.raises(ValueError, match=message):
        remove_neurons(build(FAMILIES["gpt2"][0], seed=0), neurons)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({"decoder": [0, 1]}, "all 2 layers of the decoder would be removed"),
        ({"decoder": [2]}, "the decoder has layers 0 to 1; there is no 2"),
        ({"encoder": [0]}, "there is no stack 'encoder'"),
    ],
)
def test_layers_that_cannot_be_removed(layers: dict[str, list[int]], message: str):
    with pytest.raises(ValueError, match=message):
        remove_layers(build(FAMILIES["gpt2"][0], seed=0), layers)
