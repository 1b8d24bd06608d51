"""All layers of a stack over whole sequences in one call of C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from . import prebuilt
from .compiler import library
from .layers import step_of
from .products import MOST
from .structures import LayerStruct, NormStruct

LEAST_TOKENS = 32  # for which products are made from panels


def ready(dtype: torch.dtype) -> bool:
    """Whether these kernels and the kernels of products are there for a model's dtype, and faster than PyTorch's."""
    if dtype == torch.bfloat16 and MOST[dtype] < LEAST_TOKENS:  # because of matrix units
        return False
    if not all(name in prebuilt.TARGETS and library(name) is not None for name in ("encoding", "products")):
        return False
    return hasattr(library("encoding"), "qkv_encode")


def run(
    x: Tensor,
    layers: ctypes.Array[LayerStruct],
    count: int,
    scratch: int,
    norm: NormStruct,
    starts: Sequence[int],
    offsets: Sequence[int],
    half: bool,
) -> None:
    """Apply the first `count` layers and the final norm in place to x (rows, width), a contiguous fp32 tensor.

    starts:  row of the first token of each sequence, then the number of rows.
    offsets: number of padding tokens before each sequence in its row of the batch.
    half:    attention may use products of bf16.
    """
    kernels, first, padding = library("encoding"), _longs(starts), _longs(offsets)
    assert kernels is not None
    step = step_of(x, layers, count, scratch, norm, half)
    step.starts, step.offsets, step.sequences = ctypes.addressof(first), ctypes.addressof(padding), len(offsets)
    step.row = max(layer.qkv.outs for layer in layers)
    step.out_row = max(layer.out.depth for layer in layers)
    room = x.new_empty(len(x) * (step.row + step.out_row))
    step.room = room.data_ptr()
    kernels.qkv_encode(ctypes.c_void_p(x.data_ptr()), ctypes.byref(step))


def _longs(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_long]:
    return (ctypes.c_long * len(numbers))(*numbers)
