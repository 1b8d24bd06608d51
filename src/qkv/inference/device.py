"""Where to compute, and how fast that is."""

from __future__ import annotations

import time
from functools import lru_cache

import torch

from ..core.batch import Batch
from ..core.spec import nearest
from ..cost.count import Shape, training_flops
from ..models.base import ModelSpec
from ..training.precision import DTYPES, PrecisionChoice

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose(name: str | torch.device = "auto") -> torch.device:
    """`auto`, `cpu`, `cuda` (or `cuda:1`), `mps`. Raises ValueError where the machine lacks the device."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in DEVICES[1:] or (index and not index.isdecimal()):
        raise ValueError(f"there is no device {name!r}; {nearest(kind, DEVICES)}")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            seen = f"{count} CUDA device{'s' if count != 1 else ''}" if count else "no CUDA device"
            raise ValueError(
                f"this machine has {seen} that PyTorch {torch.__version__} can use; take --device cpu or auto"
            )
    if kind == "mps" and not _has_mps():
        raise ValueError("this machine has no Apple GPU that PyTorch can use (mps); take --device cpu or auto")
    return torch.device(name)


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


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
def peak_flops(device: torch.device, precision: PrecisionChoice) -> float:
    """FLOPs a second of a large matrix product on this machine, measured: the best of many tries within a second, since
    the first are slowed by cold caches and by whatever else runs."""
    assert precision != "auto", "what a run computes in is chosen before it is measured"
    dtype = DTYPES[precision]
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
    """Until a device has computed a result."""
    result[0, 0].item()
