"""Whether derivatives go forward (`torch.func.jvp`, `forward_ad`): custom operators would silently lose them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def in_forward_mode(*tensors: Tensor | None) -> bool:
    """Whether one of these carries a tangent."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)
