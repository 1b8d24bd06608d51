"""Quantized blocks, bit for bit as llama.cpp's own Python package computes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.io.hub.gguf.block_types import BY_NAME, TYPES, WRITTEN, BlockType, written_type
from qkv.io.hub.gguf.blocks import READERS, dequantize, dtype_of, quantize

gguf = pytest.importorskip("gguf", reason="blocks are held to llama.cpp's package gguf")
quants = pytest.importorskip("gguf.quants")


def test_the_types_are_llama_cpps() -> None:
    for kind in TYPES:
        theirs = gguf.GGMLQuantizationType(kind.id)
        assert (theirs.name.lower(), gguf.GGML_QUANT_SIZES[theirs]) == (kind.name, (kind.width, kind.size))
        if kind.file is not None:
            assert gguf.LlamaFileType(kind.file).name.removeprefix("MOSTLY_").removeprefix("ALL_") == kind.name.upper()


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.name)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 0.02, 1.0, 300.0]), flat=st.booleans())
def test_written_as_theirs(kind: BlockType, seed: int, scale: float, flat: bool) -> None:
    x = (np.random.default_rng(seed).standard_normal((3, 64)) * scale).astype(np.float32)
    if flat:
        x[1] = 0
        x[2, :40] = np.round(x[2, 0])  # ties
    with np.errstate(all="ignore"):
        theirs = quants.quantize(x, gguf.GGMLQuantizationType(kind.id)).reshape(-1).view(np.uint8)
    assert np.array_equal(quantize(torch.from_numpy(x), kind).numpy(), theirs)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_read_as_theirs(name: str, seed: int) -> None:
    kind = BY_NAME[name]
    raw = np.random.default_rng(seed).integers(0, 256, (7, kind.size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        theirs = quants.dequantize(raw, gguf.GGMLQuantizationType(kind.id))
    ours = dequantize(torch.from_numpy(raw.reshape(-1)), kind, (7, kind.width))
    assert np.array_equal(ours.numpy(), theirs, equal_nan=True)


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.name)
def test_there_and_back_is_close(kind: BlockType) -> None:
    x = torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    back = dequantize(quantize(x, kind), kind, x.shape).float()
    bound = {"f32": 0.0, "f16": 1e-3, "bf16": 8e-3, "q8_0": 1e-2}.get(kind.name, 0.1)
    assert float((x - back).norm() / x.norm()) <= bound


def test_what_is_not_read_or_written_says_so() -> None:
    with pytest.raises(ValueError, match=r"iq2_xs are not read here; there are f32.*llama-quantize"):
        dtype_of(BY_NAME["iq2_xs"])
    with pytest.raises(ValueError, match=r"not written in the type 'q4_k' \(it is only read\); "):
        written_type("q4_k")
    with pytest.raises(ValueError, match="rows of 40 numbers are no whole blocks of q8_0"):
        quantize(torch.zeros(2, 40), BY_NAME["q8_0"])
    assert written_type("Q8_0").name == "q8_0"
