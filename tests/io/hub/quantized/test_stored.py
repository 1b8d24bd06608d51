"""Quantized models are saved and loaded bit for bit, in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_untrained import of, words

import qkv
from qkv.nn.layers.quantized import quantized


@pytest.mark.parametrize("weights", ["int8", "int4", "nf4", "fp8", "mxfp4"])
@pytest.mark.parametrize("to", ["qkv", "hub"])
def test_a_quantized_model_is_saved_bit_for_bit(weights: str, to: str, tmp_path: Path) -> None:
    run = of("llama", words(), "continue", {"head.tied": False}, max_positions=32, d_model=32, d_ff=64)
    small = run.quantize(weights, head=True)
    small.save(tmp_path, to)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(qkv.load(tmp_path, "cpu").model(ids), small.model(ids))
    rounded = qkv.load(run.save(tmp_path / "full", to), "cpu", weights=weights)
    assert len(quantized(rounded.model)) == 7  # without the head
    with pytest.raises(ValueError, match="its weights are quantized already; leave out weights="):
        qkv.load(tmp_path, "cpu", weights=weights)
