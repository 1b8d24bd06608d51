"""Buffers of modules: those that keep their dtype when a model is cast, and what loading has to make anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook


class KeepsDtype(nn.Module):
    """Base class of modules with buffers, named in `exact`, that casting a model never makes narrower."""

    exact: ClassVar[tuple[str, ...]] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: getattr(self, name) for name in self.exact}
        super()._apply(fn, recurse)
        for name, tensor in before.items():
            now = getattr(self, name)
            constant = isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter)
            if constant and torch.promote_types(now.dtype, tensor.dtype) != now.dtype:
                setattr(self, name, tensor.to(now.device))
        return self


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
