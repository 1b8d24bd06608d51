"""Smoothing moves scales from inputs into weights and changes no output."""

from __future__ import annotations

import pytest
import torch
from mixtures import batch_of, mixture
from prunable_models import inputs, stirred
from quantizable_models import FAMILIES

import qkv
from qkv.nn.models.quantized.parts import parts
from qkv.nn.models.quantized.select import matrices
from qkv.nn.models.quantized.smoothing import smoothings


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama-mha", "transformer", "value-width"])
def test_smoothing_changes_nothing(name: str) -> None:
    """Dividing a layer's inputs by s where they are made, and multiplying its columns by s, leaves the outputs alone."""
    model = stirred(FAMILIES[name][0])
    exact, places = model(*inputs(model)), 0
    for place in smoothings(model):
        size = model.get_submodule(place.readers[0]).in_features
        s = torch.rand(size, generator=torch.Generator().manual_seed(places)).double() + 0.5
        place.divide(s)
        for path in place.readers:
            model.get_submodule(path).weight.mul_(s)
        places += 1
    assert places == {"gpt2": 6, "llama-mha": 8, "transformer": 10, "value-width": 6}[name]
    torch.testing.assert_close(model(*inputs(model)), exact, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_smoothing_a_mixture_changes_nothing() -> None:
    shared = {"kind": "feedforward", "d_ff": 32, "activation": "silu", "gated": True, "bias": False}
    spec = mixture().spec.replace(
        {"decoder.blocks.*.feedforward.shared": shared, "decoder.blocks.*.feedforward.shared_gate": True}
    )
    model, batch = qkv.build(spec, seed=1).double().eval(), batch_of(2, 20)
    exact, every, places = model(**batch.inputs), parts(matrices(model)), 0
    for place in smoothings(model):
        size = every[place.readers[0]].weight.shape[-1]
        s = torch.rand(size, generator=torch.Generator().manual_seed(places)).double() + 0.5
        place.divide(s)
        for name in place.readers:
            every[name].weight.mul_(s)
        places += 1
    assert places == 2 * (1 + 1 + 4 + 1)  # norm of attention, norm of the mixture, each expert, the shared layer
    torch.testing.assert_close(model(**batch.inputs), exact, rtol=1e-5, atol=1e-6)
