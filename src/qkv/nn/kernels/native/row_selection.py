"""Rows of a cache's buffer replaced by other rows of it, in place, in C++."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from .compiler import library
from .structures import RowParts


def serves(buffer: Tensor, rows: Int[Tensor, " N"]) -> bool:
    """Whether the kernel supports this buffer: a contiguous tensor on the CPU that isn't empty and needs no gradient."""
    plain = buffer.is_cpu and buffer.is_contiguous() and type(buffer) is Tensor and not buffer.requires_grad
    plain = plain and buffer.numel() > 0
    return plain and rows.dtype == torch.long and library("decoding") is not None


def select_rows(buffer: Shaped[Tensor, "N K S D"], rows: Int[Tensor, " N"], used: int) -> None:
    """Let row i of the first `used` slots become the old row `rows[i]`; `serves` is true.

    Raises IndexError if a row is not one of the buffer's, and ValueError if the buffer is empty, not contiguous, or smaller.
    """
    kernels = library("decoding")
    assert kernels is not None
    count, heads, slots = buffer.shape[:3]
    if not (buffer.numel() and buffer.is_contiguous() and 0 <= used <= slots):
        raise ValueError(
            f"select_rows takes a contiguous buffer (rows, heads, slots, width) that isn't empty, and at most its slots; "
            f"got the shape {tuple(buffer.shape)}, the strides {buffer.stride()} and {used} slots"
        )
    if len(rows) != count or (count and not 0 <= int(rows.min()) <= int(rows.max()) < count):
        raise IndexError(f"{len(rows)} rows were given for a buffer of {count}: one of its rows for each was expected")
    size, rows = buffer.element_size(), rows.contiguous()
    parts = RowParts(buffer.stride(0) * size, buffer.stride(1) * size, used * buffer.stride(2) * size)
    places = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_void_p(rows.data_ptr())
    threads = ctypes.c_int(torch.get_num_threads())
    kernels.qkv_select_rows(*places, ctypes.c_long(count), ctypes.c_long(heads), ctypes.byref(parts), threads)


def select_rows_if_served(buffer: Tensor, rows: Tensor, used: int) -> bool:
    """Call `select_rows` if `serves` is true, and return whether it was."""
    served = serves(buffer, rows)
    if served:
        select_rows(buffer, rows, used)
    return served
