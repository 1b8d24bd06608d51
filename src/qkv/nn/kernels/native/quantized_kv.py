"""Products of queries with quantized keys, and of weights with quantized values, in C++: each code is read once.

On CPUs with AMX, Intel's matrix unit, codes are read in groups of 128 tokens, and queries and weights are rounded to 16
bits: to 2⁻¹⁶ of the largest number of a row and group.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from ...kv_cache.quantization import QuantizedTensor
from .. import buffers
from .compiler import library
from .structures import CodesStruct, QuantizedSizes

WIDEST, MOST = 1024, 16  # as in the source
LARGEST = 256  # tokens of a group in a fused step, as in coded_queries.h
_MOST_AMX, _GROUP = 8, 128  # as in quantized_kv_amx.cpp


def serves(codes: QuantizedTensor, rows: int) -> bool:
    """Whether the kernels take this number of query rows of a head and these codes: on the CPU, and contiguous except for
    spare slots."""
    data = codes.data
    fits = data.device.type == "cpu" and data.numel() > 0 and data.shape[4] <= WIDEST and rows <= MOST
    return fits and all(_is_packed(t) for t in codes.tensors()) and library("quantized_kv") is not None


def _is_packed(t: Tensor) -> bool:
    return t.stride(1) * t.shape[1] == t.stride(0) and t[0, 0].is_contiguous()


def describe(made: CodesStruct, keys: QuantizedTensor, values: QuantizedTensor, groups: int) -> None:
    """Describe the first `groups` groups of a cache's codes. Raises ValueError for tensors that the kernels can't read."""
    for codes in (keys, values):
        if not (0 < codes.group <= LARGEST and codes.group == keys.group and codes.bits == keys.bits):
            raise ValueError(
                f"groups have 1 to {LARGEST} tokens, and keys and values the same number; got {codes.group}"
            )
        buffers.check("describe", *codes.tensors())
        if codes.data.shape[2] < groups or not all(_is_packed(t) for t in codes.tensors()):
            raise ValueError(f"codes of {groups} groups of each head stand side by side; got {tuple(codes.data.shape)}")
    made.k, made.k_scale, made.k_zero = (t.data_ptr() for t in keys.tensors())
    made.v, made.v_scale, made.v_zero = (t.data_ptr() for t in values.tensors())
    made.k_head, made.k_scales = keys.data.stride(1), keys.scale.stride(1)
    made.v_head, made.v_scales = values.data.stride(1), values.scale.stride(1)
    made.groups, made.group, made.bits = groups, keys.group, keys.bits


def scores(q: Float[Tensor, "B K M D"], codes: QuantizedTensor, out: Float[Tensor, "B K M S"]) -> None:
    """Write q · k of the quantized keys to the first tokens of `out`. Raises ValueError if `out` shares their memory."""
    buffers.check_apart("scores", out, q, *codes.tensors())
    _call("qkv_scores", q.contiguous(), codes, out, out.stride(2), 1)


def mixed(p: Float[Tensor, "B K M S"], codes: QuantizedTensor) -> Float[Tensor, "B K M E"]:
    """Σ p v over the first tokens of `p`, which have codes."""
    b, k, m, _ = p.shape
    parts = min(
        codes.data.shape[2], -(-4 * torch.get_num_threads() // (b * k))
    )  # work for all threads if heads are few
    out = p.new_empty(b, k, parts, m, codes.data.shape[4])
    _call("qkv_mixed", p, codes, out, p.stride(2), parts)
    return out.sum(2)


def _call(name: str, x: Tensor, codes: QuantizedTensor, out: Tensor, stride: int, parts: int) -> None:
    kernels = _amx() if _fits_amx(codes, x.shape[2]) else None
    kernels = kernels or library("quantized_kv")
    assert kernels is not None and x.is_contiguous() and out.is_contiguous()
    buffers.check(name, x, *codes.tensors(), out)
    b, k, n, held, width = codes.data.shape
    steps = codes.data.stride(1), codes.scale.stride(1), stride
    sizes = QuantizedSizes(b * k, n, x.shape[2], width, held, *steps, parts, codes.bits, torch.get_num_threads())
    pointers = (ctypes.c_void_p(t.data_ptr()) for t in (x, *codes.tensors(), out))
    getattr(kernels, name)(*pointers, ctypes.byref(sizes))


def _fits_amx(codes: QuantizedTensor, rows: int) -> bool:
    """Whether the kernels for AMX take these."""
    return rows <= _MOST_AMX and _is_amx_size(codes.data.shape[4], codes.group)


def _is_amx_size(width: int, group: int) -> bool:
    return width in (64, 128) and not group % _GROUP


def is_for_amx(width: int, group: int) -> bool:
    """Whether this processor has AMX and its kernels read heads of this width and groups of this many tokens."""
    return _is_amx_size(width, group) and _amx() is not None


@cache
def _amx() -> ctypes.CDLL | None:
    """Return the AMX kernels, or None if this process can't use AMX."""
    kernels = library("quantized_kv_amx")
    return kernels if kernels is not None and kernels.qkv_tiles() else None
