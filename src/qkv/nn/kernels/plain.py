"""Whether tensors are plain ones whose memory a kernel may read now, with nothing that watches PyTorch's operators.

Custom operators silently lose the tangents of forward-mode differentiation (`torch.func.jvp`, `forward_ad`), which
`in_forward_mode` detects.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

PLAIN = frozenset({Tensor, torch.nn.Parameter, torch.nn.Buffer})


def is_plain(*tensors: Tensor) -> bool:
    """Whether no gradient is wanted, and tensors are plain ones with nothing that watches."""
    return not torch.is_grad_enabled() and is_unwatched(*tensors)


def is_unwatched(*tensors: Tensor) -> bool:
    """Whether no compiler, exporter, `torch.func` transform, autocast or mode is at work, and tensors are plain ones."""
    if not is_eager(*tensors):  # first: compilers can't trace the rest
        return False
    watched = torch._C._len_torch_dispatch_stack() or torch._C._is_torch_function_mode_enabled()
    return not watched and not torch.is_autocast_enabled("cpu")


def is_eager(*tensors: Tensor) -> bool:
    """Whether no compiler, exporter or `torch.func` transform is at work, and tensors are plain ones."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    ) and PLAIN.issuperset(map(type, tensors))


def in_forward_mode(*tensors: Tensor | None) -> bool:
    """Whether one of these tensors carries a tangent, or may carry one that `torch.func` hides."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(x is not None and (_wrapped(x) or forward_ad.unpack_dual(x).tangent is not None) for x in tensors)


def _wrapped(x: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(x)
