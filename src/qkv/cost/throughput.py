"""FLOPs of a training step per token, and the FLOPs per second that this machine reaches."""

from __future__ import annotations

import time
from functools import lru_cache

import torch

from ..core.batch import Batch
from ..models.base import ModelSpec
from .flops import Shape, training_flops


def flops_per_token(spec: ModelSpec, batch: Batch) -> float:
    """FLOPs of a training step (forward and backward) per real token, for rows of the mean length of a batch."""
    ids, target = (_row_length(batch, name, batch.rows) for name in ("ids", "target"))
    shape = Shape(1, target, ids) if target else Shape(1, ids)
    return training_flops(spec, shape) / max(shape.tokens, 1)


def _row_length(batch: Batch, name: str, rows: int) -> int:
    if name not in batch.inputs:
        return 0
    if batch.inputs[name].ndim > 2:  # pixels: the tokens of the batch without those of the target
        return batch.tokens // rows - _row_length(batch, "target", rows)
    layout = batch.inputs["layout" if name == "ids" else f"{name}_layout"]
    return round(int(layout.valid.expand(rows, -1).sum()) / rows)


@lru_cache(maxsize=8)
def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the FLOPs per second of a large matrix product: the best of many tries within a second, as cold caches and
    other processes slow down some of them."""
    size = 1536 if device.type == "cpu" else 4096
    a = torch.ones(size, size, device=device, dtype=dtype)
    best, first_start = 0.0, time.perf_counter()
    for _ in range(50):
        start = time.perf_counter()
        _wait(a @ a)
        now = time.perf_counter()
        best = max(best, 2 * size**3 / (now - start))
        if now - first_start > 1.0:
            break
    return best


def _wait(result: torch.Tensor) -> None:
    """Block until the device has computed a result."""
    result[0, 0].item()
