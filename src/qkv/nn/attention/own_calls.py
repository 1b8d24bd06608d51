"""Hooks that see only calls from the block that added them: modules and their hooks are shared by all threads.

A block belongs to the thread or asynchronous task that entered it, by a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn

from ...core.graphs import untraced

_entered: ContextVar[tuple[object, ...]] = ContextVar("entered", default=())


@contextmanager
def own_calls() -> Iterator[Callable[[], bool]]:
    """Enter a block, and return a function that tells whether it is called from the block."""
    mark = object()

    @untraced  # graphs have no context variables
    def is_own() -> bool:
        return any(each is mark for each in _entered.get())

    _entered.set((*_entered.get(), mark))
    try:
        yield is_own
    finally:
        _entered.set(tuple(each for each in _entered.get() if each is not mark))


@contextmanager
def hooked(
    hooks: Iterable[tuple[nn.Module, Callable[..., Any]]], before: bool = False, **options: Any
) -> Iterator[None]:
    """Call forward hooks of modules, or with `before` pre-hooks, in passes that are started inside the block.

    `options` are the options of PyTorch's `register_forward_hook` and `register_forward_pre_hook`.
    """
    with own_calls() as is_own, ExitStack() as stack:
        for module, hook in hooks:
            register = module.register_forward_pre_hook if before else module.register_forward_hook
            stack.callback(register(only_if(is_own, hook), **options).remove)
        yield


def only_if(is_own: Callable[[], bool], hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook if `is_own`, else one that does nothing."""
    return lambda *args: hook(*args) if is_own() else None
