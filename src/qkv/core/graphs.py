"""Decorators for `torch.compile` that don't import `torch._dynamo`, unlike `torch.compiler.disable`; it takes a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch._compile import _disable_dynamo

_P = ParamSpec("_P")
_R = TypeVar("_R")


def untraced(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.disable`: the graph breaks here, and the function runs eagerly."""
    disabled = _disable_dynamo(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            return disabled(*args, **kwargs)
        return function(*args, **kwargs)  # the first call of `disabled` would import `torch._dynamo`

    return call


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.assume_constant_result`: the graph keeps the result that the function returned during tracing."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
