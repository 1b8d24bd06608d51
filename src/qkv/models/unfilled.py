"""Detect uninitialized parameters: new memory is filled with NaN, so parameters that still hold NaN were not initialized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ALLOCATORS = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
}


class Unfilled(TorchDispatchMode):
    """Context in which `torch.empty` and its relatives fill floating-point tensors with NaN."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return (
            False  # nothing is compiled in here, and the wrapper that True gives would import torch._dynamo: a second
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", func) in _ALLOCATORS and result.is_floating_point():
            result.fill_(float("nan"))
        return result


def unfilled(value: Tensor) -> Tensor:
    """True where nothing was written since the tensor was allocated inside `Unfilled`."""
    return value.isnan()
