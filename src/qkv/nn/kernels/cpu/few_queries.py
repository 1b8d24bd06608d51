"""The backend `decode`: attention of few queries over many keys on CPUs, as in a decoding step (Flash-Decoding, Dao 2023).

    out = Σ_t e^(s_t − top) v_t / Σ_t e^(s_t − top),   s_t = scale · q · k_t + bias,   top = max_t s_t

The queries that share a key-value head are compared with each of its keys together, so keys and values are read once.
Threads take parts of the keys, and the results of parts are merged by their largest scores and sums. Sums are in fp32, in an
order that depends on the number of keys alone, so a row's result does not depend on its batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..native import decoding as native
from ..plain import PLAIN
from ..request import Request, Result

FEWEST_KEYS = 2  # per query: for more queries, as in a prompt, kernels that work on blocks of queries are faster


def refuses(request: Request) -> str | None:
    q, k, v = request.q, request.k, request.v
    if request.dropout:
        return "it is for decoding, without dropout"
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        return "it is for decoding, without gradients"
    if not is_readable(q, k, v):
        return "it reads memory, and can't be traced, compiled or transformed, nor cast by autocast"
    if not native.fits(q, k, v):
        return (
            f"it is for CPUs with a C++ compiler or prebuilt kernels, fp32 and bf16, up to {native.MOST_ROWS} queries of a "
            f"key-value head, and widths up to {native.WIDEST} that are multiples of {native.UNIT}"
        )
    return None if native.serves(q, k, v) else "its C++ kernels could not be built"


def is_readable(*tensors: Tensor) -> bool:
    """Whether a kernel may read the tensors' memory: no compiler, `torch.func` transform, mode or autocast is at work."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cpu")
    ) and PLAIN.issuperset(map(type, tensors))


def run(request: Request) -> Result:
    q = request.q
    lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32) if request.return_lse else None
    mask, bias = request.mask(), request.dense_bias()
    out = native.attend(q, request.k, request.v, request.scale, mask, bias, request.softcap, lse)
    return out if lse is None else (out, lse)
