"""A step of all layers of a decoder in one call of C++: the source's structures, and the call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from . import prebuilt
from .compiler import library
from .decoding import Attention
from .products import KINDS, Matrix

_WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"
MOST_TOKENS = {torch.float32: 256 if _WIDE else 64, torch.bfloat16: 256 if _WIDE else 32}
OWN, CROSS, FEED_FORWARD = range(3)  # the source's `Sublayer`
NO_NORM, LAYER_NORM, RMS_NORM = range(3)  # its `NormKind`
ACTIVATIONS = (
    "relu",
    "gelu",
    "gelu-tanh",
    "gelu-quick",
    "silu",
    "sigmoid",
    "relu-squared",
    "identity",
)  # its `Activation`

_LONG, _INT, _FLOAT, _PLACE = ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_void_p


class _Weight(ctypes.Structure):
    """The source's `Weight`: a matrix as `products` reads it."""

    _fields_ = [(name, _PLACE) for name in ("codes", "scales", "zeros", "bias")]
    _fields_ += [(name, _LONG) for name in ("outs", "half_bias")]


class Product(ctypes.Structure):
    """The source's `Product`."""

    _fields_ = [
        ("weights", _PLACE),
        *((name, _LONG) for name in ("count", "depth", "group", "outs")),
        *((name, _INT) for name in ("kind", "integer")),
    ]


class Norm(ctypes.Structure):
    """The source's `Norm`."""

    _fields_ = [
        ("weight", _PLACE),
        ("bias", _PLACE),
        ("eps", _FLOAT),
        ("offset", _FLOAT),
        ("kind", _INT),
        ("half", _INT),
    ]


class Layer(ctypes.Structure):
    """The source's `Layer`."""

    _fields_ = [
        *((name, Norm * 3) for name in ("before", "after", "sum")),
        *((name, Norm) for name in ("q_norm", "k_norm")),
        *((name, Product) for name in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
        *((name, Attention) for name in ("own", "cross")),
        *((name, _PLACE) for name in ("k", "v", "cross_k", "cross_v")),
        ("slot", _LONG),
        *((name, _PLACE) for name in ("cos", "sin")),
        *((name, _LONG) for name in ("table_step", "turned")),
        *((name, _INT) for name in ("interleaved", "norms_all", "activation", "gated")),
        ("has", _INT * 3),
        *((name, _INT) for name in ("parallel", "adds")),
        *((name, _FLOAT) for name in ("skip", "multiplier")),
    ]


class _Step(ctypes.Structure):
    """The source's `Step`."""

    _fields_ = [
        ("layers", _PLACE),
        *((name, _LONG) for name in ("count", "rows", "width", "scratch")),
        ("products", _PLACE),
        ("available", _PLACE),
        ("norm", Norm),
        *((name, _INT) for name in ("threads", "unused")),
    ]


def ready() -> bool:
    """Whether the kernels, and those of products, are there, built if they weren't yet."""
    return all(name in prebuilt.TARGETS and library(name) is not None for name in ("decoding", "products"))


def product_of(matrices: Sequence[Matrix], integer: bool = False) -> tuple[Product, object]:
    """The products with matrices of one format, width and group, and what has to live as long as they do."""
    first, parts = matrices[0], []
    for codes, bias, scales, zeros in matrices:
        places = (None if tensor is None else tensor.data_ptr() for tensor in (codes, scales, zeros, bias))
        parts.append(_Weight(*places, len(codes), _is_half(bias)))
    weights = (_Weight * len(parts))(*parts)
    depth = first.codes.shape[1] * (2 if first.codes.dtype == torch.uint8 else 1)
    group = depth if first.scales is None else depth // first.scales.shape[1]
    sizes = len(parts), depth, group, sum(len(matrix.codes) for matrix in matrices)
    return Product(ctypes.addressof(weights), *sizes, KINDS[first.codes.dtype], integer), weights


def _is_half(x: Tensor | None) -> bool:
    return x is not None and x.dtype == torch.bfloat16


def run(x: Tensor, layers: ctypes.Array[Layer], count: int, scratch: int, norm: Norm) -> None:
    """Apply the first `count` layers and the last norm to x (rows, width), in fp32 and contiguous, in place."""
    kernels, multiply = library("decoding"), library("products")
    assert kernels is not None and multiply is not None and x.is_contiguous() and x.dtype == torch.float32
    calls = [ctypes.cast(function, _PLACE) for function in (multiply.qkv_products, multiply.qkv_available)]
    step = _Step(ctypes.addressof(layers), count, len(x), x.shape[1], scratch, *calls, norm, torch.get_num_threads(), 0)
    kernels.qkv_step(ctypes.c_void_p(x.data_ptr()), ctypes.byref(step))
