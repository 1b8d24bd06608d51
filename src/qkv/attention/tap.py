"""Inspect attention without slowing it: a tap records requests, and computes weights afterwards, on demand.

with tap.record() as requests:
    model(ids)
weights = tap.weights(requests[-1], heads=[0, 3])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from ..kernels.request import Request

_taps: list[list[Request]] = []  # of the process; a plain list, which compiled models can trace


@contextmanager
def record() -> Iterator[list[Request]]:
    """Record every request to `attend` inside the block, in order, each with the name of its layer."""
    requests: list[Request] = []
    _taps.append(requests)
    try:
        yield requests
    finally:
        _taps[:] = [tap for tap in _taps if tap is not requests]


def recording() -> bool:
    """Whether requests are being recorded."""
    return bool(_taps)


def offer(request: Request) -> None:
    """Record a request; called by `attend`."""
    for requests in _taps:
        requests.append(request)


def weights(request: Request, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None) -> Tensor:
    """The attention weights (B, heads, rows, S) of a recorded request, for some heads and query rows (None: all)."""
    from ..kernels import reference
    from ..positions.base import Bias

    if request.known_weights is not None:
        known = request.known_weights.detach()
        known = known if heads is None else known[:, list(heads)]
        return known if rows is None else known[:, :, list(rows)]
    q, k, v, bias, layout = request.q, request.k, request.v, request.dense_bias(), request.layout
    mask = request.mask()
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
        k=k.index_select(2, kv),
        v=v.index_select(2, kv),
        bias=cut(bias),
        dropout=0.0,
        score=None if request.score is None else request.score.of(head),
        sinks=None if request.sinks is None else request.sinks[head],
    )
    assert not isinstance(small.bias, Bias)
    with torch.no_grad():
        out = reference.weights(small, cut(mask))
        valid = layout.valid[:, at] if layout.padding != "none" else None
        return out if valid is None else out.masked_fill(~valid[:, None, :, None], 0.0)
