"""Attention in exported graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_loop import continued
from onnx_models import PROMPTS, of_preset

import qkv
from qkv.generation import generate
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run


@pytest.mark.slow
def test_exported_latent_attention_generates_the_same_tokens(tmp_path: Path) -> None:
    latent = {"kind": "latent-attention", "n_heads": 4, "d_head": 8, "d_rotary": 4, "d_latent": 16}
    spec = of_preset("gpt2", max_positions=32, position="rotary").spec.replace({"decoder.blocks.*.attention": latent})
    model = qkv.build(spec, seed=5).eval()
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
