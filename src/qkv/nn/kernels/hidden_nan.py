"""NaN and infinities in keys and values that a query does not see, which reach its result where kernels multiply what they
mask: 0 · NaN is NaN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_HALVES = (torch.float16, torch.bfloat16)


def may_have_nan(x: Tensor) -> bool:
    """Whether the sum of a tensor is NaN or infinite. A sum that overflows is too, which only costs time.

    Only CPUs are asked: other devices, compilers and `torch.func` would have to wait for the answer or can't give it.
    """
    if not x.is_cpu or type(x) is not Tensor or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None:
        return False
    x = x.detach()
    return not math.isfinite(x.sum(dtype=torch.float32 if x.dtype in _HALVES else x.dtype).item())


def confined(whole: Tensor, clean: Tensor, seen: Tensor) -> Tensor:
    """Return `whole` for queries that have `seen` a token that is not finite, and `clean`, the result without such
    tokens, for the others. Gradients come from `clean`, because the gradients of `whole` are NaN everywhere."""
    return clean + torch.where(seen, whole - clean, 0.0).detach()
