"""Quantized weights of layers: shared, moved, cast, adapted by LoRA, and read by everything that reads a weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.nn.layers.embedding import Embedding
from qkv.nn.layers.linear import Linear
from qkv.nn.layers.lora import LoRA, adapt, fold, folded, merge
from qkv.nn.layers.low_rank import plain
from qkv.nn.layers.quantized import QuantizedMatrix, check_not_quantized, put, quantized
from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.methods.rtn import rtn


def net() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Module()
    model.one, model.two = Linear(16, 8), Linear(16, 8, bias=False)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    model.two.weight = model.one.weight
    return model


def matrix(weight: torch.Tensor, name: str = "nf4") -> QuantizedMatrix:
    return QuantizedMatrix(rtn(weight.detach(), format_of(name), 16))


def test_a_shared_weight_stays_shared() -> None:
    model = net()
    put(model, "one", matrix(model.one.weight))
    assert model.one.weight is model.two.weight and list(quantized(model)) == ["one"]
    assert sum(p.numel() for p in model.parameters()) == 8  # the bias
    with pytest.raises(ValueError, match="pruning works on weights in full precision"):
        check_not_quantized(model, "pruning")


def test_codes_keep_their_dtype() -> None:
    model = net()
    put(model, "one", matrix(model.one.weight, "fp8"))
    model.to(torch.bfloat16)
    weight = model.one.weight
    assert weight.codes.dtype == torch.float8_e4m3fn and weight.scales.dtype == torch.float32
    assert weight.dtype == torch.bfloat16 == model.one.bias.dtype
    assert model.one(torch.ones(2, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert model.to_empty(device="meta").one.weight.codes.is_meta


def test_embeddings_return_rows() -> None:
    table = Embedding().module(20, 16)
    nn.init.normal_(table.weight)
    put(table, "", matrix(table.weight, "int8"))
    ids = torch.tensor([[3, 19], [0, 3]])
    assert torch.equal(table(ids, None), table.weight.dense()[ids])
    for wrong in (torch.tensor([[20]]), torch.tensor([[-1]])):
        with pytest.raises(ValueError, match="the vocabulary has 20"):
            table(wrong, None)
    with pytest.raises(ValueError, match="are integers"):
        table(torch.ones(1, 1), None)


def test_lora_over_codes_is_qlora() -> None:
    model = net()
    put(model, "one", matrix(model.one.weight))
    base, x = model.one.weight.dense(), torch.randn(5, 16)
    adapt(model, LoRA(layers="one", rank=2, alpha=4.0))
    nn.init.normal_(model.one.lora_b)
    delta = 2.0 * model.one.lora_b @ model.one.lora_a
    torch.testing.assert_close(model.one(x), x @ (base + delta).T + model.one.bias)
    model.one(x).sum().backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {"one.lora_a", "one.lora_b"}
    with pytest.raises(ValueError, match="can't be added to quantized weights"):
        merge(model)
    with folded(model):
        torch.testing.assert_close(model.one.weight, base + delta)
    assert isinstance(model.one.weight, QuantizedMatrix)
    torch.testing.assert_close(fold(model).one.weight, base + delta)


def test_a_plain_layer_has_the_dequantized_weight() -> None:
    model = net()
    put(model, "one", matrix(model.one.weight))
    assert torch.equal(plain(model.one).weight, model.one.weight.dense())
    x = torch.randn(3, 16)
    torch.testing.assert_close(plain(model.one)(x), model.one(x))
