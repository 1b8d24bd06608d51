"""Attention of few queries over many keys, as in decoding, in C++: each key and value is read once."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from .. import buffers
from .block_sparse import sizes_of
from .compiler import available, library
from .structures import AttentionStruct

MOST_ROWS, WIDEST, UNIT = 16, 256, 8  # of a key-value head's queries, of a head; widths are multiples of the last
_DTYPES = (torch.float32, torch.bfloat16)
_Steps = ctypes.c_long * 4


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel, if it is available, takes these: on the CPU, in fp32 or bf16, few rows of a key-value
    head."""
    rows = q.shape[1] * (q.shape[2] // k.shape[2])
    widths = all(x.shape[3] <= WIDEST and x.shape[3] % UNIT == 0 for x in (q, v))
    plain = q.dtype in _DTYPES and k.dtype == v.dtype == q.dtype and q.device.type == "cpu"
    return plain and rows <= MOST_ROWS and widths and all(x.numel() for x in (q, k, v)) and available("decoding")


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel serves these: `fits`, and it is there, built if it wasn't yet."""
    return fits(q, k, v) and library("decoding") is not None


def attend(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"],
    v: Float[Tensor, "B S K E"],
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    softcap: float | None = None,
    lse: Float[Tensor, "B H T"] | None = None,
) -> Float[Tensor, "B T H E"]:
    """softmax(scale · QKᵀ + bias) V; `mask` and `bias` broadcast to (B, H, T, S), and `lse` is filled if it is given.

    Raises ValueError for empty tensors, or a mask that isn't boolean.
    """
    kernels = library("decoding")
    assert kernels is not None
    buffers.check("attend", q, k, v, lse)
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"a mask is boolean, True where a query may attend, not {mask.dtype}")
    q, k, v = (buffers.by_rows(x) for x in (q, k, v))
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device="cpu")
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    bias = None if bias is None else bias.float()
    masked, biased = placed(mask, scores), placed(bias, scores)
    half = q.dtype == torch.bfloat16
    about = AttentionStruct(
        *sizes_of(q, k, v, out),
        *masked,
        *biased,
        None if lse is None else lse.data_ptr(),
        scale,
        softcap or 0.0,
        half,
        half,
        torch.get_num_threads(),
    )
    pointers = (ctypes.c_void_p(x.data_ptr()) for x in (q, k, v, out))
    kernels.qkv_attend(*pointers, ctypes.byref(about))
    return out


def placed(x: Tensor | None, scores: tuple[int, ...]) -> tuple[int | None, ctypes.Array[ctypes.c_long]]:
    """The address of a tensor, and its steps along the axes of `scores`, 0 if it broadcasts."""
    if x is None:
        return None, _Steps()
    return x.data_ptr(), _Steps(*x.expand(scores).stride())
