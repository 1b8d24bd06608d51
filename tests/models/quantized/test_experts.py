"""The experts of a mixture are quantized, and saved in every format with the same outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import qkv
from qkv.export.gguf import save
from qkv.inference.run import Run
from qkv.layers.quantized import quantized

SIZES = {"vocab_size": 96, "d_model": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "max_positions": 64}
PRESETS = {
    "mixtral-8x7b": {**SIZES, "d_ff": 96, "n_experts": 4},
    "qwen1.5-moe-a2.7b": {**SIZES, "d_ff": 64, "d_expert": 32, "n_experts": 4, "top_k": 2, "d_shared": 64},
}
UP = "decoder.blocks.1.feedforward.up"


@pytest.mark.parametrize(
    ("name", "weights"), [("mixtral-8x7b", "int4"), ("qwen1.5-moe-a2.7b", "fp8"), ("qwen1.5-moe-a2.7b", "int8")]
)
@torch.no_grad()
def test_experts_stay_quantized_in_files(name: str, weights: str, tmp_path: Path) -> None:
    model = qkv.build(qkv.preset(name, **PRESETS[name]), seed=1).eval()
    small = Run(model, None, task="continue").quantize(weights, group_size=32)  # type: ignore[arg-type]
    matrix = quantized(small.model)[UP]
    original = model.get_parameter(f"{UP}.weight")
    assert matrix.dense().shape == original.shape
    assert 0 < float((matrix.dense() - original).norm() / original.norm()) < (0.02 if weights == "int8" else 0.2)
    ids = torch.randint(96, (2, 20), generator=torch.Generator().manual_seed(1))
    wanted = small.model(ids)
    torch.testing.assert_close(small.dequantize().model(ids), wanted, rtol=1e-4, atol=1e-5)
    for to in ("hub", "qkv"):
        again = qkv.load(small.save(tmp_path / to, to), "cpu").model  # type: ignore[arg-type]
        assert quantized(again).keys() == quantized(small.model).keys()
        torch.testing.assert_close(again(ids), wanted, rtol=1e-5, atol=1e-5)
    if weights != "fp8":
        again = qkv.load(save(small.model, tmp_path / "m.gguf"), "cpu").model
        assert torch.equal(quantized(again)[UP].codes, matrix.codes)
    rounded = qkv.load(Run(model, None, task="continue").save(tmp_path / "dense", "hub"), "cpu", weights=weights)
    assert quantized(rounded.model)[UP].dense_shape == original.shape
