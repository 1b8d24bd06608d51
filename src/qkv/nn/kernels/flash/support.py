"""Which tensors and devices the Triton kernels can serve."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ....core.graphs import constant

WIDEST = 256
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def refuses_tensors(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """Why the kernels can't serve these queries, keys and values; None when they can."""
    missing = _missing(q.device.type)
    if missing is not None:
        return missing
    if q.dtype not in _DTYPES:
        return f"its kernels compute in fp32, fp16 and bf16, not in {q.dtype}"
    if not q.dtype == k.dtype == v.dtype:
        return f"q, k and v must have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}"
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return "Triton's interpreter does not multiply bf16 correctly"
    widest = max(q.shape[-1], v.shape[-1])
    return None if widest <= WIDEST else f"its kernels take heads up to {WIDEST} wide, not {widest}"


@constant
def _missing(device: str) -> str | None:
    return _missing_on(device, os.environ.get("TRITON_INTERPRET", "0"))


@lru_cache(maxsize=8)
def _missing_on(device: str, interpreting: str) -> str | None:
    """What is missing: Triton, a device that it compiles for, or its interpreter."""
    if find_spec("triton") is None:
        return "it needs Triton, which is not installed"
    if device == "cuda":
        return None
    if device == "cpu" and interpreting not in ("", "0"):
        from .kernels.language import INTERPRETED

        return None if INTERPRETED else "TRITON_INTERPRET=1 was set after Triton had been imported, which is too late"
    return f"it needs a CUDA device (or TRITON_INTERPRET=1 on a CPU), and the inputs are on {device}"
