"""Inspect attention without slowing it: a tap records requests, and computes weights afterwards, on demand.

with tap.record_attention() as requests:
    model(ids)
weights = tap.weights(requests[-1], heads=[0, 3])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...core.layout import View
from ...core.several import worded
from ..kernels.request import Edits, Request
from .own_calls import own_calls

Interceptor = Callable[[Request], Edits | None]


@dataclass(eq=False)
class _Block:
    """What a block does with requests that are made inside it."""

    is_own: Callable[[], bool]
    intercept: Interceptor | None = None
    requests: list[Request] = field(default_factory=list)


blocks: list[_Block] = []  # of all threads; almost always empty, which compiled models can trace


@contextmanager
def record_attention() -> Iterator[list[Request]]:
    """Record every request to `attend` inside the block, in order, each with the name of its layer and the edits of
    interceptors. Requests of other threads and tasks are not recorded."""
    with _entered(None) as block:
        yield block.requests


@contextmanager
def intercept(function: Interceptor) -> Iterator[None]:
    """Call `function` with every request to `attend` inside the block, before it is computed, and with the edits of blocks
    around this one. Requests of other threads and tasks stay as they are.

    If it returns `Edits`, the reference implementation computes this request, with the edited scores or weights.
    """
    with _entered(function):
        yield


@contextmanager
def _entered(function: Interceptor | None) -> Iterator[_Block]:
    with own_calls() as is_own:
        block = _Block(is_own, function)
        blocks.append(block)
        try:
            yield block
        finally:
            blocks.remove(block)


def recording() -> bool:
    """Whether requests of the caller are being recorded or intercepted."""
    return bool(blocks) and any(block.is_own() for block in tuple(blocks))


def offer(request: Request) -> Request:
    """Record a request, and return it with the edits of interceptors; called by `attend`."""
    if not blocks:
        return request
    own = [block for block in tuple(blocks) if block.is_own()]
    for block in own:
        edits = None if block.intercept is None else block.intercept(request)
        if edits is not None:
            request = replace(request, edits=(*request.edits, edits))
    for block in own:
        if block.intercept is None:
            block.requests.append(request)
    return request


@worded
def weights(request: Request, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None) -> Tensor:
    """The attention weights (B, heads, rows, S) of a recorded request, for some heads and query rows (None: all)."""
    from ..kernels import reference

    if request.known_weights is not None:
        return _selected(request.known_weights.detach(), heads, rows)
    with torch.no_grad():
        if request.edits:  # which are of all heads and rows
            return _selected(reference.weights(*part(request)), heads, rows)
        return reference.weights(*part(request, heads, rows))


def scores(request: Request, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None) -> Tensor:
    """The scores (B, heads, rows, S) before the soft-max of a recorded request; the dtype's minimum for masked
    pairs.

    Raises ValueError for a layer that reports its weights alone, as recurrent models do.
    """
    from ..kernels import reference

    if request.known_weights is not None:
        raise ValueError(f"{request.name} reports its weights without their scores")
    with torch.no_grad():
        if request.edits:
            return _selected(reference.scores(*part(request))[0], heads, rows)
        return reference.scores(*part(request, heads, rows))[0]


def _selected(x: Tensor, heads: Sequence[int] | None, rows: Sequence[int] | None) -> Tensor:
    x = x if heads is None else x[:, list(heads)]
    return x if rows is None else x[:, :, list(rows)]


def allowed(request: Request, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None) -> Tensor | None:
    """The pairs (B or 1, heads or 1, rows or 1, S) that pattern, padding and bias allow; None if all are allowed."""
    if request.known_weights is not None:
        return None
    small, mask = part(request, heads, rows)
    bias = small.dense_bias()
    visible = None if bias is None else bias != float("-inf")
    if visible is None or bool(visible.all()):
        return mask
    return visible if mask is None else mask & visible


def part(
    request: Request, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None
) -> tuple[Request, Tensor | None]:
    """The request for some heads and query rows, with a tensor as its bias and as many key-value heads as heads; and its
    mask, in which padded queries see nothing."""
    mask, q, layout = request.mask(), request.q, request.layout
    chosen = list(range(request.n_heads)) if heads is None else list(heads)
    at = torch.tensor(list(range(q.shape[1])) if rows is None else list(rows), device=q.device)
    group = request.n_heads // request.n_kv_heads
    kv = torch.tensor([h // group for h in chosen], device=q.device)
    head = torch.tensor(chosen, device=q.device)

    def cut(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        t = t.reshape((1,) * (4 - t.ndim) + tuple(t.shape))
        t = t.index_select(1, head) if t.shape[1] != 1 else t
        return t.index_select(2, at) if t.shape[2] != 1 else t

    small = replace(
        request,
        q=q.index_select(2, head).index_select(1, at),
        k=request.k.index_select(2, kv),
        v=request.v.index_select(2, kv),
        bias=_bias(request, head, at, cut),
        dropout=0.0,
        score=None if request.score is None else request.score.of(head),
        sinks=None if request.sinks is None else request.sinks[head],
    )
    keep = cut(mask)
    if layout.padding != "none":
        valid = layout.valid[:, at][:, None, :, None]
        keep = valid if keep is None else keep & valid
    return small, keep


def _bias(request: Request, head: Tensor, at: Tensor, cut: Callable[[Tensor | None], Tensor | None]) -> Tensor | None:
    """The bias of some heads and rows, of which a position bias computes no others."""
    from ..positions.base import Bias

    if not isinstance(request.bias, Bias):
        return cut(request.bias)
    view = request.layout.queries()
    queries = View(*(t.index_select(1, at) if t.ndim > 1 and t.shape[1] != 1 else t for t in view))
    with torch.no_grad():
        bias = request.bias(queries, request.kv_layout.keys())
    bias = bias.reshape((1,) * (4 - bias.ndim) + tuple(bias.shape))
    return bias.index_select(1, head) if bias.shape[1] != 1 else bias
