"""Causal linear attention in a traced graph: the products of all pairs of new tokens, and the sums over those before them.

A graph can't cut its tokens into as many chunks as there are, so a pass over T tokens takes T² products of features, like
attention; a step, with T = 1, costs what it costs in qkv. Sums that are zero are those before the first token.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...core.layout import Layout
from ...nn.attention.feature_maps import Features
from ...nn.attention.linear import LOW, LinearProblem, LinearState, linear_attention


def by_products(
    q: Features,
    k: Features,
    v: Float[Tensor, "B T K E"],
    layout: Layout,
    causal: bool = False,
    state: LinearState | None = None,
    **ignored: Any,
) -> Float[Tensor, "B T H E"]:
    """`attention.linear.linear_attention` for rows of one document. A `state` has the sums so far, and is updated."""
    if not causal:
        return linear_attention(q, k, v, layout)
    problem = LinearProblem.of(q, k, v, layout, None)
    state = LinearState() if state is None else state
    before = problem.v.new_zeros(()) if state.sums is None else state.sums
    sums = _plain(problem, before, state) if problem.log is None else _weighted(problem, problem.log, before, state)
    total = sums[..., -1:]
    out = sums[..., :-1] / total.masked_fill(total == 0, 1.0)
    return out.masked_fill(~layout.valid[:, :, None, None], 0.0).to(v.dtype)


def _earlier(tokens: int, device: torch.device) -> Bool[Tensor, "T T"]:
    at = torch.arange(tokens, device=device)
    return at[:, None] >= at


def _queries(p: LinearProblem) -> Float[Tensor, "B K GT R"]:
    return _copied(p.q.permute(0, 2, 3, 1, 4)).flatten(2, 3)


def _by_query(x: Float[Tensor, "B K GT X"], p: LinearProblem) -> Float[Tensor, "B K G T X"]:
    return x.unflatten(2, (p.q.shape[3], -1))


def _by_head(x: Float[Tensor, "B K GT E1"], p: LinearProblem) -> Float[Tensor, "B T H E1"]:
    return _copied(_by_query(x, p).permute(0, 3, 1, 2, 4)).flatten(2, 3)


def _copied(x: Tensor) -> Tensor:
    """x in the order of its axes. Whether products and `flatten` could do without a copy depends on T = 1, and the graph's T
    is any."""
    return x.clone(memory_format=torch.contiguous_format)


def _plain(p: LinearProblem, before: Tensor, state: LinearState) -> Float[Tensor, "B T H E1"]:
    q, k, values = _queries(p), _copied(p.k.permute(0, 2, 3, 1)), _copied(p.v.transpose(1, 2))
    scores = _by_query(q @ k, p).masked_fill(~_earlier(p.k.shape[1], p.k.device), 0.0).flatten(2, 3)
    out = scores @ values
    if before.ndim:
        out = out + q @ before
    state.sums = before + k @ values
    return _by_head(out, p)


def _weighted(
    p: LinearProblem, log: Float[Tensor, "B T K"], before: Tensor, state: LinearState
) -> Float[Tensor, "B T H E1"]:
    """With logs: all that query t sees is scaled by e^(−M_t), with M_t the largest log among it."""
    q, k, values = _queries(p), _copied(p.k.permute(0, 2, 3, 1)), _copied(p.v.transpose(1, 2))
    log = log.transpose(1, 2)
    top = _top(before, state, log)
    seen = torch.where(_earlier(p.k.shape[1], p.k.device), log[:, :, None], LOW)
    most = torch.maximum(seen.amax(-1), top[..., None])
    weights = (seen - most[..., None]).exp()[:, :, None]
    out = (_by_query(q @ k, p) * weights).flatten(2, 3) @ values
    if before.ndim:
        carried = (top[..., None] - most).exp()[:, :, None, :, None]
        out = out + (carried * _by_query(q @ before, p)).flatten(2, 3)
    state.top = torch.maximum(top, log.amax(-1))
    state.sums = (
        before * (top - state.top).exp()[..., None, None]
        + (k * (log - state.top[..., None]).exp()[:, :, None]) @ values
    )
    return _by_head(out, p)


def _top(before: Tensor, state: LinearState, log: Float[Tensor, "B K T"]) -> Float[Tensor, "B K"]:
    """The largest log before these tokens; sums of zeros have none."""
    if state.top is None or not before.ndim:
        return torch.full_like(log[..., 0], LOW)
    return torch.where(before[..., -1].sum(-1) == 0, LOW, state.top)
