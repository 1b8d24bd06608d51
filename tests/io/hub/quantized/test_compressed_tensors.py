"""Quantized matrices are written as other libraries write them, and read back the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from packed_layouts import D_OUT, opened

from qkv.io.hub.quantized import bitsandbytes, compressed_tensors
from qkv.nn.quantization.formats import Packed, format_of
from qkv.nn.quantization.methods.rtn import rtn


@pytest.mark.parametrize("name", ["int8", "int4", "fp8", "mxfp4", "nf4"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_what_is_written_is_read(tmp_path: Path, name: str, symmetric: bool) -> None:
    format = format_of(name)
    if not symmetric and not format.has_zeros:
        pytest.skip("the format has no zero points")
    w = torch.randn(D_OUT, 64) + 0.5
    packed = rtn(w, format, format.group_size(64), symmetric)
    if name in ("int4", "int8"):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).int()
        packed = Packed(format, packed.shape, packed.codes, packed.scales, packed.zeros, order)
    if name == "nf4":
        parts, config = bitsandbytes.tensors(packed, torch.float32), bitsandbytes.config([], torch.float32)
    else:
        parts = compressed_tensors.tensors(packed)
        config = compressed_tensors.config({"a": compressed_tensors.CompressedMatrix(packed, "none")}, ["head"])
    weights = opened(tmp_path, {f"a{ending}": tensor for ending, tensor in parts.items()}, config)
    found = weights.matrix("a.weight")
    assert torch.equal(found.dense(), packed.dense()) and found.format is format
    assert json.loads(json.dumps(config)) == config
