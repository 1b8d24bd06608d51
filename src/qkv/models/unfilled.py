"""Parameters without numbers: `Unfilled` fills new memory with NaN, so that parameters which still hold NaN were not
initialized; `without_parameters` makes those that are to be loaded on the meta device, beside real buffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
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


@contextmanager
def without_parameters() -> Iterator[None]:
    """Context in which the modules that this thread makes have real buffers, and parameters on the meta device."""
    here = threading.get_ident()

    def emptied(module: nn.Module, name: str, parameter: Any) -> Any:
        if threading.get_ident() != here or parameter is None or parameter.is_meta:
            return None
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(emptied)
    try:
        yield
    finally:
        handle.remove()
