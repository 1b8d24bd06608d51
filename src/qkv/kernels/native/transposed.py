"""Copies of transposed matrices in C++: calls of the kernel."""

from __future__ import annotations

import ctypes

from jaxtyping import Shaped
from torch import Tensor

from .compiler import library

LEAST = 1 << 16  # numbers from which the kernel is worth loading


def serves(into: Tensor, matrix: Tensor) -> bool:
    """Whether the kernel supports a copy: of a large matrix with contiguous columns into one with contiguous rows, both
    on the CPU and of the same dtype of 16 or 32 bits."""
    if into.ndim != 2 or into.shape != matrix.shape or into.numel() < LEAST or into.dtype != matrix.dtype:
        return False
    by_columns = matrix.stride(0) == 1 and matrix.stride(1) >= matrix.shape[0] and into.is_contiguous()
    plain = into.is_cpu and matrix.is_cpu and into.itemsize in (2, 4) and not into.requires_grad
    return by_columns and plain and library("transposed") is not None


def copy(into: Shaped[Tensor, "R C"], matrix: Shaped[Tensor, "R C"]) -> None:
    """Copy a matrix, with one thread; `serves` is true."""
    kernels = library("transposed")
    assert kernels is not None
    rows, columns = (ctypes.c_long(size) for size in matrix.shape)
    source, target = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (matrix, into))
    kernels.qkv_transpose(source, ctypes.c_long(matrix.stride(1)), target, columns, rows, ctypes.c_int(into.itemsize))
