"""PyTorch's fused `scaled_dot_product_attention`, with a mask only if the host can't rule one out."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from .cpu import tiled
from .hidden_nan import may_have_nan
from .plan import is_aligned_causal, needed_parts, same_segment
from .request import Request, Result

_SHORT = 160  # tokens up to which fp32 is faster than bf16 in training on a CPU


def refuses(request: Request) -> str | None:
    if request.softcap is not None:
        return "the fused function has no soft-cap"
    if request.return_lse:
        return "the fused function does not return the log-sum-exp"
    return None


def run(request: Request) -> Result:
    widen = request.q.dtype == torch.bfloat16 and _widens(request)
    q, k, v = request.q.transpose(1, 2), request.k.transpose(1, 2), request.v.transpose(1, 2)
    d, e = q.shape[-1], v.shape[-1]
    if d != e:  # the fused kernels need one width; zeros change neither scores nor values
        q, k, v = (F.pad(t, (0, max(d, e) - t.shape[-1])) for t in (q, k, v))
    if widen:
        q, k, v = q.float(), k.float(), v.float()
    parts = needed_parts(request.pattern, request.layout, request.kv_layout)
    causal = request.bias is None and is_aligned_causal(parts, request.layout, request.kv_layout)
    mask, shape = None if causal else _mask(request, q.dtype), (*q.shape[:3], v.shape[-1])
    # On CPUs the function reads keys and values again for each query head that shares them, which dominates decoding. The
    # queries of one token that share them are passed as rows of one head instead, which gives the same result.
    if request.q.shape[1] == 1 and request.n_heads != request.n_kv_heads and q.device.type == "cpu":
        q = q.reshape(q.shape[0], request.n_kv_heads, -1, q.shape[-1])
        mask = mask if mask is None else _by_group(mask, *q.shape[1:3])
    # Autocast would cast the inputs back to bf16.
    with torch.autocast(q.device.type, enabled=False) if widen else nullcontext():
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=request.dropout,
            is_causal=causal,
            scale=request.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    if (causal or mask is not None) and may_have_nan(out):
        return tiled.run(request)  # in which NaN reaches only the queries that see it
    return out.reshape(shape).transpose(1, 2)[..., :e].to(request.q.dtype)


def needs_mask(request: Request) -> bool:
    """Whether the function would need a mask, as far as the host can tell."""
    parts = needed_parts(request.pattern, request.layout, request.kv_layout)
    if is_aligned_causal(parts, request.layout, request.kv_layout):
        return False
    return bool(parts) or request.kv_layout.padding != "none" or not same_segment(request.layout, request.kv_layout)


def _widens(request: Request) -> bool:
    """Whether to compute bf16 inputs in fp32, because the fused function's backward pass is slow in bf16.

    On CPUs it spends some 65 µs on every head of every row, however short: with 16 tokens 33 ms where fp32 takes 2.
    """
    q, k = request.q, request.k
    if q.device.type != "cpu" or q.shape[1] * k.shape[1] > _SHORT**2:
        return False
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)


def _by_group(mask: Tensor, heads: int, group: int) -> Tensor:
    """(B or 1, H or 1, 1, S), for one token → (B or 1, K or 1, G, S)."""
    b, h, _, s = mask.shape
    return mask.expand(b, 1, group, s) if h == 1 else mask.reshape(b, heads, group, s)


def _mask(request: Request, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as the one tensor that the function takes, computed once per pass."""
    mask, bias = request.mask(), request.dense_bias()
    if bias is None:
        return mask
    b, h, t, s = request.q.shape[0], request.n_heads, request.q.shape[1], request.k.shape[1]

    def make() -> Tensor:
        masked = bias.to(dtype) if mask is None else torch.where(mask, bias.to(dtype), float("-inf"))
        masked = masked.reshape((1,) * (4 - masked.ndim) + tuple(masked.shape))
        # Rows and columns must be expanded; batch and heads may stay broadcast.
        return masked.expand(b if masked.shape[0] != 1 else 1, h if masked.shape[1] != 1 else 1, t, s)

    return request.plan.once(f"masked bias {dtype}", (bias, mask), make)
