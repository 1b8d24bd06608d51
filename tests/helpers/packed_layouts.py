"""Matrices packed number by number, in the layouts of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.io.hub.files import Safetensors
from qkv.io.hub.quantized import QuantizedWeights, layout_of
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
