"""A step of all layers of a decoder in one call of C++."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from . import prebuilt
from .compiler import library
from .layers import step_of
from .structures import LayerStruct, NormStruct

_WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"
MOST_TOKENS = {torch.float32: 256 if _WIDE else 64, torch.bfloat16: 256 if _WIDE else 32}


def ready() -> bool:
    """Whether these kernels and the kernels of products are there, built if they weren't yet."""
    return all(name in prebuilt.TARGETS and library(name) is not None for name in ("decoding", "products"))


def run(x: Tensor, layers: ctypes.Array[LayerStruct], count: int, scratch: int, norm: NormStruct) -> None:
    """Apply the first `count` layers and the final norm in place to x (rows, width), a contiguous fp32 tensor."""
    kernels = library("decoding")
    assert kernels is not None
    kernels.qkv_step(ctypes.c_void_p(x.data_ptr()), ctypes.byref(step_of(x, layers, count, scratch, norm)))
