"""Decorators for `torch.compile` that don't import `torch._dynamo`, unlike `torch.compiler.disable`; it takes a second.

`Operator` is a custom operator that is registered when it is first called, because registering takes milliseconds each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch._compile import _disable_dynamo

_P = ParamSpec("_P")
_R = TypeVar("_R")
_registering = Lock()


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


class Operator:
    """A function as a custom operator of PyTorch, a single node of a graph; its name is `qkv::` and `name`.

    Used as `torch.library.custom_op`. What is registered may be called by graphs as `torch.ops.qkv.<name>`, from its first
    call or from `registered(name)` on.
    """

    waiting: ClassVar[dict[str, Operator]] = {}  # to be registered

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.fake: Callable[..., Any] = function
        self.gradients: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self.waiting[name] = self

    def __call__(self, *inputs: Any) -> Any:
        registered(self.name)
        return getattr(torch.ops.qkv, self.name)(*inputs)

    def register_fake(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Give it the shapes of its results, as `torch.library.register_fake` does."""
        self.fake = function
        return function

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """Give it its gradients, as `torch.library.register_autograd` does."""
        self.gradients = backward, setup_context


def _apart(function: Callable[..., Any], disabled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `disabled`, which graph compilers skip, if `torch._dynamo` is imported; else `function`.

    The first call of `disabled` imports `torch._dynamo`, which takes about a second. Unless it is imported, no graph is
    being compiled.
    """

    def call(*inputs: Any) -> Any:
        return (disabled if "torch._dynamo" in sys.modules else function)(*inputs)

    return call


def operator(name: str) -> Callable[[Callable[..., Any]], Operator]:
    """Make an `Operator` of a function that changes none of its arguments."""

    def decorate(function: Callable[..., Any]) -> Operator:
        return Operator(name, function)

    return decorate


@constant
def registered(name: str) -> bool:
    """Register an operator and the other operators of its module, unless they are registered already.

    The gradients of an operator may call the others. A backward pass that is loaded from the compiler's cache is not
    traced, so it would not register them. During tracing, registration happens immediately and is not part of the graph.
    """
    if name in Operator.waiting:
        with _registering:
            first = Operator.waiting.get(name)
            module = None if first is None else first.function.__module__
            for made in [made for made in Operator.waiting.values() if made.function.__module__ == module]:
                _register(made)
                del Operator.waiting[made.name]
    return True


def _register(made: Operator) -> None:
    known = torch.library.custom_op(f"qkv::{made.name}", made.function, mutates_args=())
    known._backend_fns = {device: _apart(made.function, call) for device, call in known._backend_fns.items()}
    known.register_fake(made.fake)
    if made.gradients is not None:
        known.register_autograd(made.gradients[0], setup_context=made.gradients[1])
