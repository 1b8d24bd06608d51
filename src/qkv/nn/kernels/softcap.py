"""The `capped` backend: attention with a soft-cap on scores, for short sequences; it holds all weights.

    s = c · tanh(scale · QKᵀ / c),  out = softmax(s) V            (Gemma Team 2024, Gemma 2, §2)

PyTorch's fused function has no soft-cap. Key-value heads are not repeated for the queries that share them, and backward
keeps only W and tanh. On CPUs, requests in which NaN would reach queries that don't see it are left to `tiled`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .cpu import tiled
from .hidden_nan import may_have_nan
from .request import Request, Result


def refuses(request: Request) -> str | None:
    if request.softcap is None:
        return "it is for scores with a soft-cap; without one, take sdpa"
    if request.bias is not None:
        return "it has no bias"
    if request.dropout:
        return "it has no dropout of attention weights"
    if request.return_lse:
        return "it does not return the log-sum-exp"
    return None


def run(request: Request) -> Result:
    q, k, v = (x.transpose(1, 2) for x in (request.q, request.k, request.v))
    b, h, t, d = q.shape
    kv = k.shape[1]
    mask = request.mask()
    if mask is not None and mask.ndim == 4:
        mask = mask.unsqueeze(2) if mask.shape[1] == 1 else mask.unflatten(1, (kv, h // kv))
    if mask is not None and torch.is_grad_enabled() and may_have_nan(k):
        return tiled.run(request)
    out: Tensor = _Capped.apply(q.reshape(b, kv, h // kv, t, d), k, v, mask, request.scale, request.softcap)
    if mask is not None and may_have_nan(out):
        return tiled.run(request)
    return out.reshape(b, h, t, v.shape[-1]).transpose(1, 2)


class _Capped(torch.autograd.Function):
    """G query heads share each of K key-value heads: their scores are one product of G · T rows."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B K G T D"],
        k: Float[Tensor, "B K S D"],
        v: Float[Tensor, "B K S E"],
        mask: Bool[Tensor, "B K G T S"] | None,
        scale: float,
        cap: float,
    ) -> Float[Tensor, "B K G T E"]:
        out, bent, w = _capped(q, k, v, mask, scale, cap)
        ctx.save_for_backward(q, k, v, bent, w)
        ctx.mask, ctx.scale, ctx.cap = mask, scale, cap
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bent, w = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            out = _capped(q, k, v, ctx.mask, ctx.scale, ctx.cap)[0]
            return *torch.autograd.grad(out, (q, k, v), grad, create_graph=True, allow_unused=True), None, None, None
        rows, g = w.flatten(2, 3), grad.flatten(2, 3)
        d_w = (g @ v.mT).unflatten(2, q.shape[2:4])
        # softmax: ds = w ∘ (dw − Σ w ∘ dw);  tanh: the slope is 1 − tanh², cap and scale cancel to scale
        d_s = torch._softmax_backward_data(d_w.to(bent.dtype), w.to(bent.dtype), -1, bent.dtype)
        d_s = torch.addcmul(d_s, d_s, bent.square(), value=-1).mul_(ctx.scale).to(q.dtype).flatten(2, 3)
        d_q = (d_s @ k).unflatten(2, q.shape[2:4])
        return d_q, d_s.mT @ q.flatten(2, 3), rows.mT @ g, None, None, None


def _capped(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, tanh(scale · QKᵀ / cap) and the weights."""
    wide = torch.promote_types(q.dtype, torch.float32)
    bent = (q.flatten(2, 3) @ k.mT).to(wide).mul_(scale / cap).tanh_().unflatten(2, q.shape[2:4])
    s = bent * cap
    if mask is not None:
        s = s.masked_fill_(~mask, float("-inf"))
    w = torch.ops.aten._safe_softmax(s, -1).to(v.dtype)  # a row with nothing to see: 0
    return (w.flatten(2, 3) @ v).unflatten(2, q.shape[2:4]), bent, w
