"""Call a function on an activation each time that a model computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ..attention import tap
from ..attention.own_calls import only_if, own_calls
from ..kernels.request import Request
from .sites import LayerSite, Site

Function = Callable[[Site, Tensor], Tensor]


@contextmanager
def attached(chosen: Iterable[Site], function: Function) -> Iterator[None]:
    """Inside the block, replace each activation of `chosen` by `function(site, activation)`, in the caller's passes.

    Hooks run in the order in which blocks are entered: an inner block's function gets what that of an outer one returned.
    """
    with own_calls() as is_own, ExitStack() as stack:
        counters: dict[nn.Module, _Counter] = {}
        for site in chosen:
            now = _running(site.layer, counters, stack, is_own)
            if site.where in ("scores", "weights"):
                stack.enter_context(tap.intercept(_edits(site, function, now)))
            else:
                stack.callback(_hook(site, function, now).remove)
        yield


@contextmanager
def observed(chosen: Iterable[Site], function: Callable[[Site, Request], None]) -> Iterator[None]:
    """Inside the block, call `function(site, request)` for each attention request of `chosen` scores and weights."""
    with own_calls() as is_own, ExitStack() as stack:
        counters: dict[nn.Module, _Counter] = {}
        for site in chosen:
            now = _running(site.layer, counters, stack, is_own)
            stack.enter_context(tap.intercept(_listener(site, function, now)))
        yield


def _listener(
    site: Site, function: Callable[[Site, Request], None], now: Callable[[], bool]
) -> Callable[[Request], tap.Edits | None]:
    def listen(request: Request) -> tap.Edits | None:
        if request.name == site.request and now():
            function(site, request)
        return None

    return listen


def _hook(site: Site, function: Function, now: Callable[[], bool]) -> Any:
    def change(x: Tensor) -> Tensor:
        return site.unview(function(site, site.view(x)))

    def on_input(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        return (change(inputs[0]), *inputs[1:]) if now() else None

    def on_output(module: nn.Module, inputs: Any, output: Any) -> Any:
        if not now():
            return None
        if isinstance(output, Tensor):
            return change(output) if output.is_floating_point() else None
        if type(output) is tuple and output and isinstance(output[0], Tensor):
            return (change(output[0]), *output[1:])
        return None  # not a tensor, or a structure with one somewhere inside

    if site.where == "input":
        return site.module.register_forward_pre_hook(on_input)
    return site.module.register_forward_hook(on_output)


def _edits(site: Site, function: Function, now: Callable[[], bool]) -> Callable[[Request], tap.Edits | None]:
    def edits(request: Request) -> tap.Edits | None:
        if request.name != site.request or not now():
            return None
        return tap.Edits(**{site.where: lambda x: function(site, x)})

    return edits


class _Counter:
    """Which of the layers that share a block is running, from 0."""

    def __init__(self) -> None:
        self.index = -1

    def reset(self, *_: Any) -> None:
        self.index = -1

    def advance(self, *_: Any) -> None:
        self.index += 1


def _running(
    layer: LayerSite | None, counters: dict[nn.Module, _Counter], stack: ExitStack, is_own: Callable[[], bool]
) -> Callable[[], bool]:
    """Return a function that tells whether a call is the caller's, and the running block that of `layer`, which layers may
    share."""
    if layer is None or not layer.shared:
        return is_own
    counter = counters.get(layer.block)
    if counter is None:
        counter = counters[layer.block] = _Counter()
        stack.callback(layer.stack.register_forward_pre_hook(only_if(is_own, counter.reset)).remove)
        stack.callback(layer.block.register_forward_pre_hook(only_if(is_own, counter.advance)).remove)
    at = layer.stack.block_of[layer.index]
    place = [i for i, block in enumerate(layer.stack.block_of) if block == at].index(layer.index)
    return lambda: is_own() and counter.index == place
