"""Layers as the kernels of whole stacks see them: the structures of `layers.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from .compiler import library
from .products import KINDS, ORDER, Matrix
from .structures import LayerStruct, NormStruct, Product, ProductSizes, StepStruct, WeightStruct

OWN, CROSS, FEED_FORWARD = range(3)  # the source's `Sublayer`
NO_NORM, LAYER_NORM, RMS_NORM = range(3)  # its `NormKind`
ACTIVATIONS = (
    "identity",
    "relu",
    "gelu",
    "gelu-tanh",
    "gelu-quick",
    "silu",
    "sigmoid",
    "relu-squared",
)  # its `Activation`
GATES = ("softmax", "top-k-softmax", "sigmoid")  # its `Gates`


def product_of(matrices: Sequence[Matrix], integer: bool = False) -> tuple[Product, object]:
    """The products with matrices of one format, width and group, and what has to live as long as they do."""
    first, parts = matrices[0], []
    for codes, bias, scales, zeros in matrices:
        places = (None if tensor is None else tensor.data_ptr() for tensor in (codes, scales, zeros, bias))
        parts.append(WeightStruct(*places, len(codes), _is_half(bias)))
    weights = (WeightStruct * len(parts))(*parts)
    depth = first.codes.shape[1] * (2 if first.codes.dtype == torch.uint8 else 1)
    group = depth if first.scales is None else depth // first.scales.shape[1]
    sizes = len(parts), depth, group, sum(len(matrix.codes) for matrix in matrices)
    return Product(ctypes.addressof(weights), *sizes, KINDS[first.codes.dtype], integer), weights


def _is_half(x: Tensor | None) -> bool:
    return x is not None and x.dtype == torch.bfloat16


def is_by_panels(product: Product, rows: int) -> bool:
    """Whether products with so many rows are made from panels, at the pace of the largest products."""
    kernels = library("products")
    assert kernels is not None
    sizes = ProductSizes(
        product.count, rows, product.depth, product.group, product.kind, 0, product.integer, 1, 0, 0, ORDER.now
    )
    return bool(kernels.qkv_by_panels(ctypes.byref(sizes)))


def step_of(
    x: Tensor, layers: ctypes.Array[LayerStruct], count: int, scratch: int, norm: NormStruct, half: bool = False
) -> StepStruct:
    """Describe a step of the first `count` layers and the final norm over x (rows, width), a contiguous fp32 tensor.

    Raises ValueError for no rows or more layers than there are.
    """
    kernels = library("products")
    assert kernels is not None and x.is_contiguous() and x.dtype == torch.float32
    if not (x.numel() and 0 <= count <= len(layers)):
        raise ValueError(
            f"a step is of some rows and up to {len(layers)} layers; got the shape {tuple(x.shape)} and {count}"
        )
    names = ("qkv_products", "qkv_by_panels", "qkv_available")
    calls = [ctypes.cast(getattr(kernels, name), ctypes.c_void_p) for name in names]
    sizes = count, len(x), x.shape[1], scratch
    return StepStruct(ctypes.addressof(layers), *sizes, *calls, norm, torch.get_num_threads(), half, ORDER.now)
