"""Attention in a traced graph: products of matrices or PyTorch's fused function, with one additive mask for all layers.

softmax(scale · QKᵀ + bias) V, as `qkv.nn.attention.attend.attend` computes it, without what a graph can't hold: choosing a
backend by shapes and reading facts on the host. The mask is finite, so rows of padding are numbers and never NaN;
what they hold means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ...core.layout import Layout
from ...nn.kernels import reference
from ...nn.kernels.plan import Plan
from ...nn.kernels.request import Request, ScoreFunction, WeightFunction
from ...nn.patterns.basic import Full, Pattern
from ...nn.positions.base import Bias

Attend = Callable[..., Tensor]


def by_products(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"],
    v: Float[Tensor, "B S K E"],
    *,
    fused: bool = False,
    pattern: Pattern,
    layout: Layout,
    kv_layout: Layout,
    plan: Plan,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    score: ScoreFunction | None = None,
    weighting: WeightFunction | None = None,
    sinks: Float[Tensor, " H"] | None = None,
    **ignored: Any,
) -> Float[Tensor, "B T H E"]:
    """The output of attention. `fused` calls PyTorch's `scaled_dot_product_attention` if it can compute the request."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    request = Request(q, k, v, pattern, layout, kv_layout, bias, scale, 0.0, softcap, False, plan, "", score, weighting)
    if score is not None or weighting is not None:
        return _plain(request)
    mask = _additive(request)
    if fused and softcap is None and sinks is None:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if (
            mask is not None
        ):  # with a row for each query: a traced call that broadcasts one row rules out a single query
            mask = mask.to(q.dtype).expand(*mask.shape[:-2], q.shape[2], mask.shape[-1])
        out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        return out.transpose(1, 2)
    return _by_groups(request, mask, sinks)


by_fused_function: Attend = partial(by_products, fused=True)


def _by_groups(request: Request, mask: Tensor | None, sinks: Tensor | None) -> Float[Tensor, "B T H E"]:
    """Two products of matrices. The G queries that share a key-value head are rows of one matrix, (B, K, G · T, D)."""
    groups, heads = request.n_heads // request.n_kv_heads, request.n_kv_heads
    q = (request.q * request.scale).transpose(1, 2)
    k, v = request.k.transpose(1, 2), request.v.transpose(1, 2)
    if groups > 1:
        q = q.unflatten(1, (heads, groups)).flatten(2, 3)
    scores = q @ k.transpose(-1, -2)
    if groups > 1:
        scores = scores.unflatten(2, (groups, -1)).flatten(1, 2)
    if request.softcap is not None:
        scores = request.softcap * torch.tanh(scores / request.softcap)
    scores = scores.float() if mask is None else scores.float() + mask
    if sinks is None:
        weights = torch.softmax(scores, -1)
    else:
        sink = sinks.to(scores.dtype)[:, None, None].expand(scores.shape[0], -1, scores.shape[2], -1)
        weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    weights = weights.to(v.dtype)
    if groups > 1:
        weights = weights.unflatten(1, (heads, groups)).flatten(2, 3)
    out = weights @ v
    if groups > 1:
        out = out.unflatten(2, (groups, -1)).flatten(1, 2)
    return out.transpose(1, 2)


def _additive(request: Request) -> Float[Tensor, "B H T S"] | None:
    """Mask and bias as one tensor to add to scores in fp32, the same for all layers of a pass; None without either."""
    plan, bias = request.plan, request.dense_bias()
    mask = None if isinstance(request.pattern, Full) and request.kv_layout.padding == "none" else request.mask()
    if mask is None:
        return None if bias is None else bias.float()
    hidden = torch.finfo(torch.float32).min

    def make() -> Tensor:
        return torch.where(mask, torch.zeros((), dtype=torch.float32) if bias is None else bias.float(), hidden)

    return plan.once("additive mask", (mask, bias), make)


def _plain(request: Request) -> Float[Tensor, "B T H E"]:
    """Other scores and weightings, by the equation."""
    mask = request.mask()
    scores, mask = reference.scores(request, mask)
    assert request.weighting is not None or request.score is not None
    weights = torch.softmax(scores, -1) if request.weighting is None else request.weighting.weights(scores, mask)
    weights = weights if mask is None else torch.where(mask, weights, 0.0)
    v = request.v.transpose(1, 2).repeat_interleave(request.n_heads // request.n_kv_heads, 1)
    return (weights.to(v.dtype) @ v).transpose(1, 2)
