"""Gradients of weights, dW = Dᵀ X in fp32, in C++ without transposed copies: calls of the kernels."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from .. import buffers
from .compiler import library
from .structures import GradientSizes


@cache
def ready() -> bool:
    """Whether the kernels are available. They need AVX-512."""
    kernels = library("weight_gradients")
    if kernels is None or not hasattr(kernels, "qkv_weight_gradient"):
        return False
    kernels.qkv_weight_gradient_room.restype = ctypes.c_long
    return True


def room(rows: int, outs: int, columns: int) -> int:
    """Return the number of bytes that `put` allocates."""
    kernels = library("weight_gradients")
    assert kernels is not None
    return int(kernels.qkv_weight_gradient_room(ctypes.byref(GradientSizes(rows, outs, columns))))


def put(
    into: Float[Tensor, "O I"],
    d: Float[Tensor, "N O"],
    x: Float[Tensor, "N I"],
    adds: bool = False,
    sums: Float[Tensor, " O"] | None = None,
) -> None:
    """Store Dᵀ X in `into`, or add it if `adds`. Add the sum of D's rows to `sums` if given. Both must be contiguous.

    Raises ValueError for empty tensors, and for results that share memory with the inputs.
    """
    kernels = library("weight_gradients")
    assert kernels is not None
    buffers.check("put", d, x, into, sums)
    buffers.check_apart("put", into, d, x, sums)
    if sums is not None:
        buffers.check_apart("put", sums, d, x)
    d, x = (buffers.by_rows(rows) for rows in (d, x))
    sizes = GradientSizes(len(x), *into.shape, d.stride(0), x.stride(0), adds, torch.get_num_threads())
    scratch = torch.empty(room(len(x), *into.shape), dtype=torch.int8, device="cpu")
    tensors = (None if t is None else ctypes.c_void_p(t.data_ptr()) for t in (d, x, into, sums, scratch))
    kernels.qkv_weight_gradient(*tensors, ctypes.byref(sizes))
