"""GELU and its derivative in fp32 in C++: calls of the kernel."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .. import buffers
from .compiler import library


def ready() -> bool:
    return library("gelu") is not None


def run(x: Tensor, d: Tensor | None, by_tanh: bool) -> Tensor:
    """f(x), or d ⊙ f′(x) if d is given, of contiguous fp32 tensors that aren't empty: ValueError for others."""
    buffers.check("gelu", x, d)
    if not all(t.is_contiguous() and t.shape == x.shape for t in (x, x if d is None else d)):
        raise ValueError("gelu takes contiguous tensors of one shape; give x.contiguous()")
    kernels, out = library("gelu"), torch.empty_like(x)
    assert kernels is not None
    tensors = (None if t is None else ctypes.c_void_p(t.data_ptr()) for t in (x, d))
    kernels.qkv_gelu(
        *tensors, ctypes.c_long(x.numel()), ctypes.c_void_p(out.data_ptr()), by_tanh, torch.get_num_threads()
    )
    return out
