"""The normalizers of logits and the largest of each chunk of tokens, in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..buffers import check
from .compiler import library


def serves(logits: Tensor) -> bool:
    """Whether the kernel supports these logits: a contiguous fp32 tensor on the CPU that needs no gradient."""
    plain = logits.is_cpu and logits.dtype == torch.float32 and logits.is_contiguous() and type(logits) is Tensor
    watched = torch.is_grad_enabled() and logits.requires_grad
    return plain and not watched and logits.numel() > 0 and library("decoding") is not None


def rank(
    logits: Float[Tensor, "N V"], chunk: int, forbidden: Sequence[int] = ()
) -> tuple[Float[Tensor, " N"], Float[Tensor, "N C"]]:
    """log Σ eˣ of each row, and the largest logit of each chunk of tokens without the forbidden ones; `serves` is true.

    Raises ValueError for no logits, or chunks of less than one token.
    """
    kernels = library("decoding")
    assert kernels is not None
    check("rank", logits)
    if chunk < 1:
        raise ValueError(f"a chunk has at least one token, not {chunk}")
    rows, vocab = logits.shape
    marks = sorted({token for token in forbidden if 0 <= token < vocab})
    normalizers, best = logits.new_empty(rows), logits.new_empty(rows, -(-vocab // chunk))
    sizes = (ctypes.c_long * 5)(rows, vocab, chunk, len(marks), torch.get_num_threads())
    places = [ctypes.c_void_p(x.data_ptr()) for x in (logits, normalizers, best)]
    kernels.qkv_rank(places[0], sizes, (ctypes.c_long * len(marks))(*marks), *places[1:])
    return normalizers, best
