"""FLOPs of a training step for each token, and how many FLOPs a second this machine reaches."""

from __future__ import annotations

import time
from functools import lru_cache

import torch

from ..core.batch import Batch
from ..models.base import ModelSpec
from .flops import Shape, training_flops


def flops_per_token(spec: ModelSpec, batch: Batch) -> float:
    """FLOPs of a training step (forward and twice that backward) for each real token, by rows like those of a batch."""
    rows = batch.rows
    own, source = _row_length(batch, "target", rows), 0
    if own:
        source = _row_length(batch, "ids", rows)
    else:
        own = _row_length(batch, "ids", rows)
    return training_flops(spec, Shape(1, own, source)) / max(own + source, 1)


def _row_length(batch: Batch, name: str, rows: int) -> int:
    if name not in batch.inputs:
        return 0
    if batch.inputs[name].ndim > 2:  # pixels: what the batch counts besides the target's tokens
        return batch.tokens // rows - _row_length(batch, "target", rows)
    layout = batch.inputs["layout" if name == "ids" else f"{name}_layout"]
    return round(int(layout.valid.expand(rows, -1).sum()) / rows)


@lru_cache(maxsize=8)
def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPs a second of a large matrix product, measured: the best of many tries within a second, since cold caches and
    other processes slow the first ones."""
    size = 1536 if device.type == "cpu" else 4096
    a = torch.ones(size, size, device=device, dtype=dtype)
    best, began = 0.0, time.perf_counter()
    for _ in range(50):
        start = time.perf_counter()
        _wait(a @ a)
        now = time.perf_counter()
        best = max(best, 2 * size**3 / (now - start))
        if now - began > 1.0:
            break
    return best


def _wait(result: torch.Tensor) -> None:
    """Block until the device has computed a result."""
    result[0, 0].item()
