"""Layouts of other libraries: matrices that are packed here number by number are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.io.hub.files import Safetensors
from qkv.io.hub.quantized import QuantizedWeights, bitsandbytes, compressed_tensors, layout_of
from qkv.nn.quantization.formats import Packed, format_of
from qkv.nn.quantization.formats.nf4 import LEVELS
from qkv.nn.quantization.methods.rtn import rtn
from qkv.training.checkpoints.weights import write_tensors

D_OUT, D_IN, GROUP = 16, 32, 8


def opened(tmp_path: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> QuantizedWeights:
    write_tensors(tmp_path / "model.safetensors", tensors | {"norm.weight": torch.ones(3)})
    weights = Safetensors([tmp_path / "model.safetensors"])
    return QuantizedWeights(weights, layout_of(config, "config.json"), "here")


def random_codes(seed: int, *shape: int, bits: int = 4) -> Tensor:
    return torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(seed))


def words(codes: Tensor, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Codes (…, n) in int32 words, by Python's integers."""
    count = 32 // bits
    order = order or tuple(range(count))
    rows = []
    for row in codes.reshape(-1, count).tolist():
        word = sum(row[order[i]] << (bits * i) for i in range(count))
        rows.append(word - (1 << 32) if word >= 1 << 31 else word)
    return torch.tensor(rows, dtype=torch.int32).view(*codes.shape[:-1], -1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_gptq_matrices_are_read_as_packed(tmp_path: Path, bits: int, version: str, shuffled: bool) -> None:
    codes, zeros = random_codes(1, D_OUT, D_IN, bits=bits), random_codes(2, D_OUT, D_IN // GROUP, bits=bits) // 2 + 1
    scales = torch.rand(D_OUT, D_IN // GROUP) + 0.1
    group_of = torch.arange(D_IN) // GROUP
    if shuffled:
        group_of = group_of[torch.randperm(D_IN, generator=torch.Generator().manual_seed(3))]
    stored = zeros - int(version == "gptq")
    tensors = {
        "a.qweight": words(codes, bits).T.contiguous(),
        "a.qzeros": words(stored.T.contiguous(), bits),
        "a.scales": scales.T.contiguous(),
        "a.g_idx": group_of.int(),
        "a.bias": torch.ones(D_OUT),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": version}
    weights = opened(tmp_path, tensors, config)
    assert dict(weights.shapes) == {"a.weight": (D_OUT, D_IN), "a.bias": (D_OUT,), "norm.weight": (3,)}
    expected = (codes - zeros[:, group_of]) * scales[:, group_of]
    torch.testing.assert_close(weights.read("a.weight"), expected)
    assert (weights.matrix("a.weight").order is not None) == shuffled


def test_awq_matrices_are_read_as_packed(tmp_path: Path) -> None:
    codes, zeros = random_codes(1, D_IN, D_OUT), random_codes(2, D_IN // GROUP, D_OUT)
    scales = torch.rand(D_IN // GROUP, D_OUT)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"a.qweight": words(codes, 4, order), "a.qzeros": words(zeros, 4, order), "a.scales": scales}
    weights = opened(tmp_path, tensors, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"})
    wide = [t.repeat_interleave(GROUP, 0) for t in (zeros, scales)]
    torch.testing.assert_close(weights.read("a.weight"), ((codes - wide[0]) * wide[1]).T)


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


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, "bits is 3, and GPTQ's weights are read with 4 or 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version is 'gemv'"),
        ({"quant_method": "awq", "bits": 8}, "bits is 8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"),
        ({"quant_method": "aqlm"}, "names the method 'aqlm', which is not read"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"format": "marlin-24"}}}, "'marlin-24'"),
        ({"quant_method": "compressed-tensors"}, "quantization_config: it has no 'config_groups'"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {}},
            "config_groups should have at least 1 item, not 0",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": 3}}},
            "g.weights should be an object",
        ),
        ({"quant_method": ["gptq"]}, "quant_method should be a text, not \\['gptq'\\]"),
        ({"quant_method": "gptq", "bits": 4.0}, "bits should be a whole number, not 4.0"),
    ],
)
def test_what_is_not_read(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout_of(config, "config.json")


def test_tensors_that_do_not_fit_together(tmp_path: Path) -> None:
    config = {"quant_method": "awq", "bits": 4}
    tensors = {"a.qweight": torch.zeros(D_IN, 2, dtype=torch.int32), "a.qzeros": torch.zeros(3, 2, dtype=torch.int32)}
    with pytest.raises(ValueError, match=r"a is a matrix of .* don't divide its rows"):
        opened(tmp_path, tensors | {"a.scales": torch.ones(3, D_OUT)}, config).matrix("a.weight")
    with pytest.raises(ValueError, match="weights are quantized, and none is"):
        opened(tmp_path, {}, config)


def test_bitsandbytes_reads_nf4_as_it_is_written() -> None:
    bnb = pytest.importorskip("bitsandbytes", reason="its own layout is tried where it is installed")
    packed = rtn(torch.randn(D_OUT, 64), format_of("nf4"), 64, True)
    parts = {ending.removeprefix(".weight."): t for ending, t in bitsandbytes.tensors(packed, torch.float32).items()}
    codes, state = parts.pop(".weight"), bnb.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
    assert torch.equal(bnb.functional.dequantize_4bit(codes, state), packed.dense())
