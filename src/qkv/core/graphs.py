"""Decorators for `torch.compile` that don't import `torch._dynamo`, unlike `torch.compiler.disable`; it takes a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch._compile import _disable_dynamo

_P = ParamSpec("_P")
_R = TypeVar("_R")


def untraced(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.disable`: the graph breaks here, and the function runs eagerly."""
    return _disable_dynamo(function)


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.assume_constant_result`: the graph keeps the result that the function returned during tracing."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
