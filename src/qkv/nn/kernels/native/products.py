"""Products of few rows with matrices in fp32, bf16, 8 or 4 bits in C++, each of which is read once: calls of the kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .. import buffers
from .compiler import library
from .structures import ProductSizes, WeightStruct

FULL, HALF, BYTE, NIBBLE = range(4)  # the source's `Kind`
KINDS = {torch.float32: FULL, torch.bfloat16: HALF, torch.int8: BYTE, torch.uint8: NIBBLE}
_TYPES = (torch.float32, torch.bfloat16)  # of activations and biases


def _most_in_bf16() -> int:
    """Return the most rows for which the kernels are faster than PyTorch in bf16: few on CPUs with matrix units."""
    units = ("_is_amx_tile_supported", "_is_arm_bf16_supported")
    return 4 if any(getattr(torch.cpu, name, bool)() for name in units) else 256


ANY, FEW, PANELS = range(3)  # the source's `Order`


class _Order(threading.local):
    now = ANY


ORDER = _Order()
"""The order of the sums in this thread."""


@contextmanager
def in_one_order(order: int) -> Iterator[None]:
    """Add up sums in one order for any number of rows inside: that of `FEW` rows, or of many, which are read in `PANELS`.

    A row's product is then the same to the bit whatever other rows there are. By default the order is the fastest one.
    Panels are for matrices in fp32 and bf16, and for matrices in 8 and 4 bits with activations in 8 bits;
    `layers.is_by_panels` tells.
    """
    before, ORDER.now = ORDER.now, order
    try:
        yield
    finally:
        ORDER.now = before


# The most rows of activations with which the kernels are faster than PyTorch, or than turning codes into floats first.
MOST = {torch.float32: 32, torch.bfloat16: _most_in_bf16(), torch.int8: 256, torch.uint8: 256}


class Matrix(NamedTuple):
    """A matrix W (out, in) and what belongs to its product.

    codes:  (out, in) in fp32, bf16 or int8; or uint8 (out, in / 2), two 4-bit codes, the even column's in the lower half.
    scales: (out, in / group) in fp32, of int8 and uint8. zeros: the same for uint8, or None for 8.
    """

    codes: Tensor
    bias: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None


@cache
def _kernel() -> ctypes._NamedFuncPointer | None:
    kernels = library("products")
    if kernels is None:
        return None
    kernels.qkv_products.argtypes = [ctypes.c_void_p] * 4
    kernels.qkv_products.restype = None
    return kernels.qkv_products


def ready() -> bool:
    """Whether the kernels are there, built if they weren't yet."""
    return _kernel() is not None


def serves(x: Tensor, matrices: Sequence[Matrix], integer: bool = False) -> bool:
    """Whether the kernels take these activations and matrices, which are of one kind: on the CPU, contiguous, few rows.

    Products of integers, or in one order, are of any number of rows.
    """
    depth, most = x.shape[-1], MOST.get(matrices[0].codes.dtype, 0)
    suits = integer or ORDER.now != ANY or x.numel() <= most * depth
    if not x.is_cpu or x.dtype not in _TYPES or not x.numel() or not suits:
        return False
    if not ready():
        return False
    return all(_is_plain(matrix, depth) for matrix in matrices)


def _is_plain(matrix: Matrix, depth: int) -> bool:
    codes, bias, scales, zeros = matrix
    outs, columns = codes.shape
    if columns != (depth // 2 if codes.dtype == torch.uint8 else depth) or not (codes.is_cpu and codes.is_contiguous()):
        return False
    if not outs:
        return False
    if bias is not None and not (
        bias.dtype in _TYPES and bias.numel() == outs and bias.is_cpu and bias.is_contiguous() and bias.dim() == 1
    ):
        return False
    if scales is None:
        return True
    return scales.is_cpu and scales.is_contiguous() and (zeros is None or (zeros.is_cpu and zeros.is_contiguous()))


def products(x: Tensor, matrices: Sequence[Matrix], integer: bool = False) -> Tensor:
    """x Wᵀ + b of each matrix, side by side in one tensor of the dtype of x; `serves` is true.

    `integer` rounds each row of activations to 8 bits; groups are then multiples of 32. Raises ValueError for empty tensors.
    """
    kernel = _kernel()
    assert kernel is not None
    x, shape, first = x.contiguous(), x.shape, matrices[0]
    depth, dtype = shape[-1], x.dtype
    group = depth if first.scales is None else depth // first.scales.shape[1]
    fields, outs = [], 0
    for codes, bias, scales, zeros in matrices:
        own = codes.shape[0]
        if not (own and x.numel()):
            buffers.check("products", x, codes)
        outs += own
        fields += [
            codes.data_ptr(),
            None if scales is None else scales.data_ptr(),
            None if zeros is None else zeros.data_ptr(),
            None if bias is None else bias.data_ptr(),
            own,
            bias is not None and bias.dtype == torch.bfloat16,
        ]
    out = x.new_empty((*shape[:-1], outs))
    half, threads = dtype == torch.bfloat16, torch.get_num_threads()
    sizes = _sizes(
        len(matrices),
        x.numel() // depth,
        depth,
        group,
        KINDS[first.codes.dtype],
        half,
        integer,
        threads,
        0,
        0,
        ORDER.now,
    )
    kernel(x.data_ptr(), out.data_ptr(), _weights(*fields), sizes)
    return out


@lru_cache(maxsize=4096)
def _weights(*fields: int | None) -> ctypes.Array[WeightStruct]:
    """The fields of each matrix, one after another, as the kernel reads them."""
    count = len(WeightStruct._fields_)
    parts = [WeightStruct(*fields[start : start + count]) for start in range(0, len(fields), count)]
    return (WeightStruct * len(parts))(*parts)


@lru_cache(maxsize=4096)
def _sizes(*fields: int) -> ctypes.Array[ProductSizes]:
    return (ProductSizes * 1)(ProductSizes(*fields))
