"""A dequantized model computes what the quantized one does, and trains."""

from __future__ import annotations

import torch
from prunable_models import FAMILIES, inputs, stirred

from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.dequantize import dequantize
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.quantization.scheme import Scheme


def test_the_same_outputs_with_parameters_that_stay_shared() -> None:
    model = stirred(FAMILIES["t5"][0]).float()
    names = dict(model.named_parameters()).keys()
    quantize(model, Scheme(weights="int8"), embeddings=True, head=True)
    with torch.no_grad():
        wanted = model(*inputs(model))
    dequantize(model)
    found = model(*inputs(model))
    assert not quantized(model) and dict(model.named_parameters()).keys() == names
    torch.testing.assert_close(found.detach(), wanted, rtol=1e-5, atol=1e-5)
    found.square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
