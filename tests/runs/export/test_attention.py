"""Attention in exported graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx_loop import continued

import qkv
from qkv.generation import generate
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run

SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 60}

PROMPTS = [[7, 3, 11, 40, 2], [5, 9], [1, 2, 3, 4]]


def built(name: str, **sizes: Any) -> Any:
    return qkv.build(qkv.preset(name, **{**SIZES, **sizes}), seed=5).eval()


@pytest.mark.slow
def test_latent_attention(tmp_path: Path) -> None:
    latent = {"kind": "latent-attention", "n_heads": 4, "d_head": 8, "d_rotary": 4, "d_latent": 16}
    spec = built("gpt2", max_positions=32, position="rotary").spec.replace({"decoder.blocks.*.attention": latent})
    model = qkv.build(spec, seed=5).eval()
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
