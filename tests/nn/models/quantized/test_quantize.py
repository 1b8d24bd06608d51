"""Quantized models compute nearly what they did, decode as they compute, and say what can't be quantized."""

from __future__ import annotations

import copy

import pytest
import torch
from prunable_models import IDS, TARGET, inputs, stirred
from quantizable_models import FAMILIES

import qkv
from qkv.core.batch import Batch
from qkv.nn.layers.lora import LoRA, adapt
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.quantization.scheme import Scheme


def batch(model: torch.nn.Module) -> Batch:
    named = {"ids": IDS, "target": TARGET} if model.is_encoder_decoder else {"ids": IDS}
    return Batch(named, None, {}, IDS.numel(), IDS.numel())


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", ["rtn", "gptq", "awq"])
def test_quantized_models_are_near(name: str, method: str) -> None:
    model = stirred(FAMILIES[name][0]).float()
    exact = model(*inputs(model))
    result = quantize(model, Scheme(weights="int8"), method, batches=[batch(model)])
    near = model(*inputs(model))
    assert 0 < (near - exact).norm() < 0.05 * exact.norm()
    assert list(result.errors) == list(quantized(model)) == list(result.groups)
    assert result.weights[1] < result.weights[0] and max(result.errors.values()) < 0.03


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "t5", "transformer"])
def test_quantized_models_decode(name: str) -> None:
    model = stirred(FAMILIES[name][0]).float()
    quantize(model, Scheme(weights="int4", group_size=8), embeddings=True, head=True)
    target = TARGET if model.is_encoder_decoder else IDS
    whole = model(*inputs(model))
    cache = model.start(source=IDS) if model.is_encoder_decoder else model.start(len(IDS))
    steps = torch.stack([model.step(target[:, t : t + 1], cache) for t in range(target.shape[1])], 1)
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa"])
def test_embeddings_and_head_can_have_another_scheme(name: str) -> None:
    """Every layer is then what it is if all layers have its scheme."""
    built = [stirred(FAMILIES[name][0]).float() for _ in range(3)]
    four, eight = Scheme(weights="int4", group_size=8), Scheme(weights="int8", activations="int8")
    quantize(built[0], four, embeddings=eight, head=eight)
    for model, scheme in zip(built[1:], (four, eight), strict=True):
        quantize(model, scheme, embeddings=True, head=True)
    mixed, *pure = map(quantized, built)
    for path, matrix in mixed.items():
        (own,) = (each[path] for each in pure if each[path].packed.format is matrix.packed.format)
        assert (matrix.packed.format.name == "int4") == (".blocks." in path)
        assert torch.equal(matrix.codes, own.codes) and torch.equal(matrix.scales, own.scales)
        assert matrix.activations == own.activations


def test_what_cannot_be_quantized() -> None:
    model = stirred(FAMILIES["gpt2"][0]).float()
    with pytest.raises(ValueError, match=r"decoder.blocks.0.attention.q has 24 inputs, .* --keep '\*.attention.q'"):
        quantize(model, Scheme(weights="mxfp4"))
    with pytest.raises(ValueError, match="gptq needs calibration data"):
        quantize(model, Scheme(weights="int4"), "gptq")
    with pytest.raises(ValueError, match="there is no method of quantization 'gtpq'"):
        quantize(model, Scheme(weights="int4"), "gtpq")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'nope' matches no layer"):
        quantize(model, Scheme(weights="int8"), keep=["nope"])
    with pytest.raises(ValueError, match="nf4 has no zero points"):
        quantize(model, Scheme(weights="nf4", symmetric=False))
    with pytest.raises(ValueError, match="int8 activations go with int8 and int4"):
        quantize(model, Scheme(weights="fp8", activations="int8"))
    assert not quantized(model)
    adapted = adapt(copy.deepcopy(model), LoRA())
    with pytest.raises(ValueError, match="has an adapter"):
        quantize(adapted, Scheme(weights="int8"))
    quantize(model, Scheme(weights="int8"))
    with pytest.raises(ValueError, match="this model's are quantized"):
        quantize(model, Scheme(weights="int4"))
    recurrent = qkv.build(qkv.preset("rnnsearch", vocab_size=11, d_e=8, d_h=8, d_s=8))
    with pytest.raises(ValueError, match="weights of Transformers are quantized"):
        quantize(recurrent, Scheme(weights="int8"))
