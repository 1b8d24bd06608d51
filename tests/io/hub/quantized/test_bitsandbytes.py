"""The layout of bitsandbytes: matrices packed here number by number, and its own reading of what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from packed_layouts import D_IN, D_OUT, GROUP, opened, random_codes

from qkv.io.hub.quantized import bitsandbytes
from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.formats.nf4 import LEVELS
from qkv.nn.quantization.methods.rtn import rtn


@pytest.mark.parametrize("nested", [False, True])
def test_bitsandbytes_nf4(tmp_path: Path, nested: bool) -> None:
    codes = random_codes(1, D_OUT * D_IN)
    packed = (codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None]
    absmax = torch.rand(D_OUT * D_IN // GROUP) + 0.1
    state = {"quant_type": "nf4", "blocksize": GROUP, "shape": [D_OUT, D_IN], "dtype": "float32"}
    tensors = {"a.weight": packed, "a.weight.absmax": absmax, "a.weight.quant_map": torch.tensor(LEVELS)}
    if nested:
        levels = torch.linspace(-1, 1, 256)
        indices = random_codes(4, len(absmax), bits=8)
        absmax = levels[indices] * 2.0 + 3.0
        state |= {"nested_blocksize": 256, "nested_offset": 3.0}
        tensors |= {"a.weight.absmax": indices.to(torch.uint8), "a.weight.nested_quant_map": levels}
        tensors["a.weight.nested_absmax"] = torch.tensor([2.0])
    tensors["a.weight.quant_state.bitsandbytes__nf4"] = torch.tensor(
        list(json.dumps(state).encode()), dtype=torch.uint8
    )
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    weights = opened(tmp_path, tensors, config)
    expected = torch.tensor(LEVELS)[codes] * absmax.repeat_interleave(GROUP)
    torch.testing.assert_close(weights.read("a.weight"), expected.view(D_OUT, D_IN))


def test_bitsandbytes_int8(tmp_path: Path) -> None:
    codes = (random_codes(1, D_OUT, D_IN, bits=8) - 128).to(torch.int8)
    tensors = {"a.weight": codes, "a.SCB": torch.rand(D_OUT), "a.weight_format": torch.tensor(0, dtype=torch.uint8)}
    weights = opened(tmp_path, tensors, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    torch.testing.assert_close(weights.read("a.weight"), codes * tensors["a.SCB"][:, None] / 127)


def test_bitsandbytes_reads_nf4_as_it_is_written() -> None:
    bnb = pytest.importorskip("bitsandbytes", reason="its own layout is tried where it is installed")
    packed = rtn(torch.randn(D_OUT, 64), format_of("nf4"), 64, True)
    parts = {ending.removeprefix(".weight."): t for ending, t in bitsandbytes.tensors(packed, torch.float32).items()}
    codes, state = parts.pop(".weight"), bnb.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
    assert torch.equal(bnb.functional.dequantize_4bit(codes, state), packed.dense())
