"""FLOPs of a training step per token, the FLOPs per second that this machine reaches, and the time that follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch

from ...core.batch import Batch
from ..kernels.products.dense import dense_product
from ..models.base import ModelSpec
from .flops import BatchShape, training_flops

# Model FLOPs utilization of wide models, and the width at which half of it is reached: narrow models are bound by memory and
# Python. From steps measured with one thread (docs/machine.md); the values for GPUs are customary, not measured here.
_UTILIZATION = {("cpu", "fp32"): (0.7, 100.0), ("cpu", "bf16"): (0.3, 200.0), ("cuda", "bf16"): (0.5, 512.0)}
_OTHERWISE = (0.3, 256.0)


def flops_per_token(spec: ModelSpec, batch: Batch) -> float:
    """FLOPs of a training step (forward and backward) per real token, for rows of the mean length of a batch."""
    ids, target = (_row_length(batch, name, batch.rows) for name in ("ids", "target"))
    shape = BatchShape(1, target, ids) if target else BatchShape(1, ids)
    return training_flops(spec, shape) / max(shape.tokens, 1)


def _row_length(batch: Batch, name: str, rows: int) -> int:
    if name not in batch.inputs:
        return 0
    if batch.inputs[name].ndim > 2:  # pixels: the tokens of the batch without the target's
        return batch.tokens // rows - _row_length(batch, "target", rows)
    layout = batch.inputs["layout" if name == "ids" else f"{name}_layout"]
    return round(int(layout.valid.expand(rows, -1).sum()) / rows)


SIZES = (384, 768, 1536)  # of products on CPUs
LONG = 0.25  # seconds
IN_VAIN = 4  # the measurement ends after this many tries without improvement


@lru_cache(maxsize=8)
def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the FLOPs per second of a large matrix product: the best of many tries, as cold caches and other processes
    slow down some of them. It ends when `IN_VAIN` tries in a row are not faster by a hundredth, or after a second.
    Processors without instructions for a precision get a smaller product."""
    size = product_size(lambda size: _seconds(_square(size, device, dtype))) if device.type == "cpu" else 4096
    a = _square(size, device, dtype)
    best, in_vain, first_start = 0.0, 0, time.perf_counter()
    while in_vain < IN_VAIN and time.perf_counter() - first_start < 1.0:
        flops = 2 * size**3 / _seconds(a)
        in_vain = in_vain + 1 if flops < 1.01 * best else 0
        best = max(best, flops)
    return best


def product_size(seconds: Callable[[int], float]) -> int:
    """Return the largest of `SIZES` whose product should take at most `LONG` seconds, judged by the size before it."""
    for size in SIZES[:-1]:
        seconds(size)  # the first product of a size may prepare kernels
        if 8 * seconds(size) > LONG:
            return size
    return SIZES[-1]


def _square(size: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(size, size, device=device, dtype=dtype)


def _seconds(a: torch.Tensor) -> float:
    """Seconds until the device has computed a product."""
    start = time.perf_counter()
    dense_product(a, a)[0, 0].item()
    return time.perf_counter() - start


def utilization(device: str, precision: str, d_model: int) -> float:
    """Return the share of peak speed that training reaches: most · d / (d + half)."""
    most, half = _UTILIZATION.get((device, precision), _OTHERWISE)
    return most * d_model / (d_model + half)


def seconds(flops: float, peak: float, device: str, precision: str, d_model: int) -> float:
    """Estimate seconds within a factor of about two: FLOPs ÷ (peak FLOPs per second · utilization)."""
    return flops / (peak * utilization(device, precision, d_model))
