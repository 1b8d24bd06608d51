"""Counts the bytes of the tensors that a computation allocates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_NEW = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.clone, _aten._to_copy, _aten.cat}
_NEW |= {_aten.zeros, _aten.zeros_like, _aten.new_zeros, _aten.index, _aten.stack}


class Allocations(TorchDispatchMode):
    """total: bytes of all new tensors. largest: of the largest one. Views and mapped files count nothing."""

    total = largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and function.overloadpacket in _NEW:
            size = out.numel() * out.element_size()
            self.total, self.largest = self.total + size, max(self.largest, size)
        return out
