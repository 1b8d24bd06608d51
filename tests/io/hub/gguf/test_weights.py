"""Tensors of a GGUF file as weights: quantized as they are stored, others dequantized exactly."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf_models import made

from qkv.io.hub.gguf import container
from qkv.io.hub.gguf.weights import GGUFWeights
from qkv.runs.export.gguf import save


def test_quantized_matrices_are_kept_and_others_read(tmp_path: Path) -> None:
    model = made("llama")
    weights = GGUFWeights(container.read(save(model, tmp_path / "m.gguf", "q8_0")))
    assert weights.usual_weights == "int8" and weights.dtype("output.weight") == torch.float32
    name = "blk.0.ffn_down.weight"
    assert name in weights.layers and "blk.0.attn_norm.weight" not in weights.layers
    original = model.state_dict()["decoder.blocks.0.feedforward.down.weight"]
    dense = weights.read(name)
    assert weights.shapes[name] == tuple(original.shape) == tuple(dense.shape)
    assert float((dense - original).abs().max()) <= float(original.abs().max()) / 127
    assert torch.equal(weights.matrix(name).dense(), dense)
    norm = model.state_dict()["decoder.blocks.0.norm.attention.weight"]
    assert torch.equal(weights.read("blk.0.attn_norm.weight"), norm)
    assert weights.same(name, name) and not weights.same(name, "blk.1.ffn_down.weight")
    assert not weights.same(name, "blk.0.attn_norm.weight")


def test_a_file_in_one_dtype_has_that_dtype(tmp_path: Path) -> None:
    weights = GGUFWeights(container.read(save(made("llama"), tmp_path / "m.gguf", "bf16")))
    assert weights.usual_weights is None and not weights.layers
    assert weights.dtype("blk.0.attn_norm.weight") == torch.bfloat16  # although norms stand in fp32
