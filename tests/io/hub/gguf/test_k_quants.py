"""k-quants of random bytes, as the package `gguf` reads them, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.io.hub.gguf.block_types import BY_NAME
from qkv.io.hub.gguf.k_quants import K_QUANTS, SIGNED_K


def blocks_of(name: str) -> np.ndarray:
    """Random blocks with finite scales: the fp16 numbers begin with 0x3c, so they are about 1."""
    blocks = np.random.default_rng(0).integers(0, 256, (50, BY_NAME[name].size), np.uint8)
    halves = {"q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}[name]
    for at in halves:
        blocks[:, at + 1] = 0x3C
    return blocks


@pytest.mark.parametrize("name", K_QUANTS)
def test_blocks_are_read_as_by_their_package(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    blocks = blocks_of(name)
    theirs = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name.upper()])
    ours = K_QUANTS[name](torch.from_numpy(blocks))
    assert ours.shape == (50, 256) and np.array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize(("name", "least", "most"), [("q3_k", -4, 3), ("q6_k", -32, 31)])
def test_signed_numbers_fill_their_range(name: str, least: int, most: int) -> None:
    q, scale = SIGNED_K[name](torch.from_numpy(blocks_of(name)))
    assert (int(q.min()), int(q.max())) == (least, most) and scale.shape == (50, 16)
