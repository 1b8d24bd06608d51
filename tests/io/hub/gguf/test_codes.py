"""Quantized blocks that stay quantized: the numbers are those that the reader gives, and writing keeps the codes."""

from __future__ import annotations

import pytest
import torch

from qkv.io.hub.gguf.block_types import BY_NAME
from qkv.io.hub.gguf.blocks import dequantize, quantize
from qkv.io.hub.gguf.codes import FORMATS, bytes_of, is_kept, packed_of, type_of
from qkv.nn.quantization.formats import Packed, format_of
from qkv.nn.quantization.methods.rtn import rtn


def random_bytes(kind: str, rows: int, blocks: int) -> torch.Tensor:
    """Bytes of a matrix, the scales in fp16 finite."""
    one = BY_NAME[kind]
    generator = torch.Generator().manual_seed(len(kind))
    raw = torch.randint(0, 256, (rows * blocks, one.size), dtype=torch.uint8, generator=generator)
    at = {"q8_0": 0, "q5_0": 0, "q4_0": 0, "q6_k": 208, "q3_k": 108}[kind]
    scale = torch.randn(rows * blocks, 1, generator=generator).half()
    raw[:, at : at + 2] = scale.view(torch.uint8)
    return raw.flatten()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_numbers_bit_for_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = BY_NAME[kind]
    data, shape = random_bytes(kind, 5, 3), (5, 3 * one.width)
    for piece in (1, 1 << 22):
        monkeypatch.setattr("qkv.io.hub.gguf.codes.PIECE", piece)
        packed = packed_of(data, one, shape)
        assert packed.shape == shape and packed.group == (16 if kind.endswith("_k") else 32)
        assert torch.equal(packed.dense(), dequantize(data, one, shape))


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_written_again_they_are_the_same_bytes(kind: str) -> None:
    data = random_bytes(kind, 4, 2)
    packed = packed_of(data, BY_NAME[kind], (4, 64))
    assert type_of(packed, "w") is BY_NAME[kind] and torch.equal(bytes_of(packed, "w"), data)


@pytest.mark.parametrize(("weights", "group"), [("int8", 128), ("int8", 32), ("int4", 64), ("int4", 128)])
def test_codes_are_kept_and_scales_rounded_to_fp16(weights: str, group: int) -> None:
    matrix = torch.randn(6, 128, generator=torch.Generator().manual_seed(0))
    packed = rtn(matrix, format_of(weights), group, True)
    kind = type_of(packed, "w")
    near = dequantize(bytes_of(packed, "w"), kind, (6, 128))
    halved = Packed(packed.format, packed.shape, packed.codes, packed.scales.half().float())
    assert torch.equal(near, halved.dense())
    assert float((near - packed.dense()).abs().max()) <= 2**-11 * float(matrix.abs().max()) * 1.1


def test_what_is_not_kept_or_written() -> None:
    assert (
        not is_kept(BY_NAME["q4_k"], (4, 256))
        and not is_kept(BY_NAME["q8_0"], (64,))
        and is_kept(BY_NAME["q8_0"], (2, 4, 32))
    )
    matrix = torch.randn(4, 64)
    for packed, said in (
        (rtn(matrix, format_of("nf4"), 64, True), "nf4 weights"),
        (rtn(matrix, format_of("int8"), 64, False), "int8 weights with zero points"),
        (rtn(matrix, format_of("int4"), 16, True), "int4 weights of 64 inputs in groups of 16"),
    ):
        with pytest.raises(
            ValueError, match=rf"qkv writes no GGUF of {said} \(blk.0.x\); it writes symmetric int8 and int4"
        ):
            type_of(packed, "blk.0.x")
    sorted_ = rtn(matrix, format_of("int4"), 32, True)
    sorted_ = Packed(**{**vars(sorted_), "order": torch.arange(64, dtype=torch.int32)})
    with pytest.raises(ValueError, match="whose columns are sorted into groups"):
        type_of(sorted_, "w")
    large = rtn(1e8 * matrix, format_of("int8"), 64, True)
    with pytest.raises(ValueError, match="beyond fp16's largest"):
        bytes_of(large, "w")
    assert quantize(matrix, BY_NAME["q8_0"]).numel() == 4 * 2 * 34
