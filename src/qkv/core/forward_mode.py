"""Detect forward-mode differentiation (`torch.func.jvp`, `forward_ad`): custom operators silently lose tangents."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def in_forward_mode(*tensors: Tensor | None) -> bool:
    """Whether one of these tensors carries a tangent, or may: tensors wrapped by `torch.func` hide theirs."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(x is not None and (_wrapped(x) or forward_ad.unpack_dual(x).tangent is not None) for x in tensors)


def _wrapped(x: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(x)
