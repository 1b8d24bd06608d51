"""Products of queries and weights with quantized keys and values, which read each code once.

Where a CPU has a matrix unit (Intel's AMX), it reads codes in groups of 128, queries and weights being rounded to 16
bits: to 2⁻¹⁶ of the largest number of a row and group.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from ...kv_cache.quantization import QuantizedTensor
from .compiler import library

WIDEST, MOST = 1024, 16  # as in the source
_MOST_IN_TILES, _GROUP = 8, 128  # as in quantized_kv_amx.cpp


class _Sizes(ctypes.Structure):
    """The source's `Sizes`."""

    _fields_ = [(name, ctypes.c_long) for name in ("heads", "groups", "rows", "width", "held")]
    _fields_ += [(name, ctypes.c_long) for name in ("jump", "jump_scales", "stride", "parts")]
    _fields_ += [("bits", ctypes.c_int), ("threads", ctypes.c_int)]


def serves(codes: QuantizedTensor, rows: int) -> bool:
    """Whether the kernels take so many query rows of a head, and can read these codes: on the CPU, in one piece but for the
    room for more."""
    data = codes.data
    fits = data.device.type == "cpu" and data.numel() > 0 and data.shape[4] <= WIDEST and rows <= MOST
    return fits and all(_lies(t) for t in codes.tensors()) and library("quantized_kv") is not None


def _lies(t: Tensor) -> bool:
    return t.stride(1) * t.shape[1] == t.stride(0) and t[0, 0].is_contiguous()


def scores(q: Float[Tensor, "B K M D"], codes: QuantizedTensor, out: Float[Tensor, "B K M S"]) -> None:
    """q · k for the first tokens of `out`, all that are coded."""
    _call("qkv_scores", q.contiguous(), codes, out, out.stride(2), 1)


def mixed(p: Float[Tensor, "B K M S"], codes: QuantizedTensor) -> Float[Tensor, "B K M E"]:
    """Σ p v over the first tokens of `p`, all that are coded."""
    b, k, m, _ = p.shape
    parts = min(
        codes.data.shape[2], -(-4 * torch.get_num_threads() // (b * k))
    )  # work for all threads where heads are few
    out = p.new_empty(b, k, parts, m, codes.data.shape[4])
    _call("qkv_mixed", p, codes, out, p.stride(2), parts)
    return out.sum(2)


def _call(name: str, x: Tensor, codes: QuantizedTensor, out: Tensor, stride: int, parts: int) -> None:
    kernels = _tiles() if _fits_tiles(codes, x.shape[2]) else None
    kernels = kernels or library("quantized_kv")
    assert kernels is not None and x.is_contiguous() and out.is_contiguous()
    b, k, n, held, width = codes.data.shape
    steps = codes.data.stride(1), codes.scale.stride(1), stride
    sizes = _Sizes(b * k, n, x.shape[2], width, held, *steps, parts, codes.bits, torch.get_num_threads())
    pointers = (ctypes.c_void_p(t.data_ptr()) for t in (x, *codes.tensors(), out))
    getattr(kernels, name)(*pointers, ctypes.byref(sizes))


def _fits_tiles(codes: QuantizedTensor, rows: int) -> bool:
    """Whether a matrix unit would take them, where there is one."""
    return rows <= _MOST_IN_TILES and codes.data.shape[4] in (64, 128) and not codes.group % _GROUP


@cache
def _tiles() -> ctypes.CDLL | None:
    """The kernels for a matrix unit, where this process may use one."""
    kernels = library("quantized_kv_amx")
    return kernels if kernels is not None and kernels.qkv_tiles() else None
