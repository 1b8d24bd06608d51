"""What a graph compiler is to leave alone, said without loading it: `torch.compiler.disable` imports all of `torch._dynamo`,
which takes a second, as soon as it decorates a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch._compile import _disable_dynamo

_P = ParamSpec("_P")
_R = TypeVar("_R")


def untraced(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.disable`: a graph breaks here, and the function runs as it is."""
    return _disable_dynamo(function)


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`torch.compiler.assume_constant_result`: a graph has what the function gives while it is traced."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
