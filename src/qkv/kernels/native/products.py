"""Products of few rows with matrices in fp32, bf16, 8 or 4 bits in C++, each of which is read once: calls of the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .compiler import library

MOST = 32  # rows of activations
FULL, HALF, BYTE, NIBBLE = range(4)  # the source's `Kind`
KINDS = {torch.float32: FULL, torch.bfloat16: HALF, torch.int8: BYTE, torch.uint8: NIBBLE}
_TYPES = (torch.float32, torch.bfloat16)  # of activations and biases


class Matrix(NamedTuple):
    """A matrix W (out, in) and what belongs to its product.

    codes:  (out, in) in fp32, bf16 or int8; or uint8 (out, in / 2), two 4-bit codes, the even column's in the lower half.
    scales: (out, in / group) in fp32, of int8 and uint8. zeros: the same for uint8, or None for 8.
    """

    codes: Tensor
    bias: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None


class _Weight(ctypes.Structure):
    """The source's `Weight`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("codes", "scales", "zeros", "bias")]
    _fields_ += [(name, ctypes.c_long) for name in ("outs", "half_bias")]


class _Sizes(ctypes.Structure):
    """The source's `Sizes`."""

    _fields_ = [(name, ctypes.c_long) for name in ("count", "rows", "depth", "group")]
    _fields_ += [(name, ctypes.c_int) for name in ("kind", "half", "integer", "threads")]


@cache
def ready() -> bool:
    """Whether the kernels are there, built if they weren't yet."""
    return library("products") is not None


def serves(x: Tensor, matrices: Sequence[Matrix]) -> bool:
    """Whether the kernels take these activations and matrices, which are of one kind: on the CPU, contiguous, few rows."""
    depth = x.shape[-1]
    if x.dtype not in _TYPES or x.device.type != "cpu" or not 0 < x.numel() <= MOST * depth or not ready():
        return False
    return all(_is_plain(matrix, depth) for matrix in matrices)


def _is_plain(matrix: Matrix, depth: int) -> bool:
    codes, bias = matrix.codes, matrix.bias
    columns = codes.shape[1] * (2 if codes.dtype == torch.uint8 else 1)
    if columns != depth or (bias is not None and (bias.dtype not in _TYPES or bias.shape != codes.shape[:1])):
        return False
    return all(t is None or (t.device.type == "cpu" and t.is_contiguous()) for t in matrix)


def products(x: Tensor, matrices: Sequence[Matrix], integer: bool = False) -> Tensor:
    """x Wᵀ + b of each matrix, side by side in one tensor of the dtype of x; `serves` is true.

    `integer` rounds activations to 8 bits in blocks of 32 columns; groups are then multiples of 32.
    """
    kernels = library("products")
    assert kernels is not None
    x, depth, first = x.contiguous(), x.shape[-1], matrices[0]
    group = depth if first.scales is None else depth // first.scales.shape[1]
    weights = (_Weight * len(matrices))(*(_Weight(*_fields(matrix)) for matrix in matrices))
    out = x.new_empty(*x.shape[:-1], sum(len(matrix.codes) for matrix in matrices))
    kind, half = KINDS[first.codes.dtype], x.dtype == torch.bfloat16
    sizes = _Sizes(len(matrices), x.numel() // depth, depth, group, kind, half, integer, torch.get_num_threads())
    kernels.qkv_products(
        ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.byref(weights), ctypes.byref(sizes)
    )
    return out


def _fields(matrix: Matrix) -> tuple[int | None, ...]:
    codes, bias, scales, zeros = matrix
    places = (None if t is None else t.data_ptr() for t in (codes, scales, zeros, bias))
    return *places, len(codes), bias is not None and bias.dtype == torch.bfloat16
