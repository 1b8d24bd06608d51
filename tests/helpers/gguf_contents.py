"""Tensors and metadata of every type that GGUF has, and a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.io.hub.gguf.block_types import BY_NAME
from qkv.io.hub.gguf.blocks import quantize
from qkv.io.hub.gguf.writer import Written, write

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": ["a", "ß", "<s>", ""],
    "tokenizer.ggml.scores": np.array([0.5, -1.0], np.float32),
    "tokenizer.ggml.token_type": np.array([1, 3], np.int32),
    "layers": np.array([True, False]),
}


TENSORS = {"a.weight": (torch.arange(128.0).view(2, 64), "q8_0"), "b": (torch.tensor([1.5, 2.5, 3.5]), "f32")}


def made(path: Path, metadata: dict[str, Any] | None = None, names: tuple[str, ...] = ("a.weight", "b")) -> Path:
    tensors = [
        Written(name, BY_NAME[kind], tuple(x.shape), lambda x=x, kind=kind: quantize(x, BY_NAME[kind]))  # type: ignore[misc]
        for name, (x, kind) in TENSORS.items()
        if name in names
    ]
    write(path, METADATA if metadata is None else metadata, tensors)
    return path
