"""Python bindings for the C++ kernel that copies a transposed matrix into row-major order."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Shaped
from torch import Tensor

from .. import buffers
from .compiler import library

_EXPONENTS = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}  # the bits of the exponents
LEAST = 1 << 16  # elements; smaller matrices are not worth loading the kernel for


def serves(into: Tensor, matrix: Tensor) -> bool:
    """Whether the kernel supports this copy.

    It copies a large column-major matrix into a row-major one. Both are on the CPU and have the same 16-bit or 32-bit dtype.
    """
    if into.ndim != 2 or into.shape != matrix.shape or into.numel() < LEAST or into.dtype != matrix.dtype:
        return False
    by_columns = matrix.stride(0) == 1 and matrix.stride(1) >= matrix.shape[0] and into.is_contiguous()
    plain = into.is_cpu and matrix.is_cpu and into.itemsize in (2, 4) and not into.requires_grad
    return by_columns and plain and library("transposed") is not None


def copy(into: Shaped[Tensor, "R C"], matrix: Shaped[Tensor, "R C"]) -> bool:
    """Copy `matrix` into `into` on the calling thread, and return whether all numbers are finite. `serves` must be true for
    them.

    Raises ValueError for empty matrices, and for ones that share memory.
    """
    kernels = library("transposed")
    assert kernels is not None
    buffers.check("copy", into, matrix)
    buffers.check_apart("copy", into, matrix)
    rows, columns = (ctypes.c_long(size) for size in matrix.shape)
    source, target = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (matrix, into))
    stride, size, exponent = ctypes.c_long(matrix.stride(1)), ctypes.c_int(into.itemsize), _EXPONENTS.get(into.dtype, 0)
    found = kernels.qkv_transpose(source, stride, target, columns, rows, size, ctypes.c_uint(exponent))
    return not (found and exponent)
