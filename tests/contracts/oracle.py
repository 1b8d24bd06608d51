"""Attention as one would write it in plain PyTorch, in any dtype, from a mask made pair by pair: shares nothing with qkv
but the patterns' `allowed` and the schemes' `bias`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from qkv.core.layout import Layout, View
from qkv.nn.patterns.basic import Pattern
from qkv.nn.positions.base import Bias


def visible(pattern: Pattern, layout: Layout, kv_layout: Layout, batch: int, heads: int) -> Tensor:
    """(B, H, T, S): pattern, equal segments, real query and real key, from the layouts' tensors alone."""
    q, k = _view(layout, batch, 2), _view(kv_layout, batch, 1)
    if pattern.per_head:
        q1, k1 = (View(*(t.unsqueeze(1) for t in view)) for view in (q, k))
        seen = pattern.allowed(q1, k1, torch.arange(heads)[:, None, None])
    else:
        seen = pattern.allowed(q, k).expand(batch, layout.shape[1], kv_layout.shape[1]).unsqueeze(1)
    real = (q.segment == k.segment) & (q.position >= 0) & (k.position >= 0)
    return (seen & real.unsqueeze(1)).expand(batch, heads, -1, -1)


def _view(layout: Layout, batch: int, axis: int) -> View:
    def spelled(t: Tensor | None) -> Tensor:
        t = torch.zeros(layout.shape, dtype=torch.long) if t is None else t
        return t.expand(batch, *t.shape[1:]).unsqueeze(axis)

    axes = layout.positions.expand(batch, -1, -1).unsqueeze(axis)
    return View(axes[..., 0], spelled(layout.segments), spelled(layout.roles), axes)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (B, T, H, E) and log-sum-exp (B, H, T), every operation in the dtype of q."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(t.transpose(1, 2).repeat_interleave(group, 1) for t in (k, v))
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    empty = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~(mask | empty), -math.inf)  # a row that sees nothing is let see all, and then silenced
    weights = torch.softmax(scores, -1).masked_fill(empty, 0.0)
    lse = torch.logsumexp(scores, -1).masked_fill(empty.squeeze(-1), -math.inf)
    return (weights @ v).transpose(1, 2), lse


def dense(bias: Tensor | Bias | None, layout: Layout, kv_layout: Layout, batch: int) -> Tensor | None:
    """The bias as a tensor, from positions spelled out for every row."""
    if not isinstance(bias, Bias):
        return bias
    return bias.scheme.bias(bias.tensors, _view(layout, batch, 2), _view(kv_layout, batch, 1))
