"""Attention over quantized keys and values (8 or 4 bits) while decoding, without dequantizing them as a whole.

A group's keys are k = s ∘ c + z with a scale and zero for each channel, so q · k = (q ∘ s) · c + q · z: the scales are
multiplied into the query, which is compared with the codes c. Values are v_t = s_t c_t + z_t with a scale and zero for
each token, so Σ p_t v_t = Σ (p_t s_t) c_t + Σ p_t z_t. On CPUs a C++ kernel reads the codes once
(`native.quantized_kv`), if it is available; elsewhere codes are converted to fp32 in blocks that fit the processor's
cache.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..kv_cache.quantization import QuantizedKV, QuantizedTensor, unpack
from .native import quantized_kv as native
from .request import Request

FEW = native.MOST  # query rows of a key-value head up to which codes are not dequantized
BLOCK = 1024  # tokens converted to fp32 at a time: half a megabyte at a width of 128


def refuses(request: Request) -> str | None:
    """Why a request over `QuantizedKV` keys is better served by dequantizing them."""
    if request.return_lse or request.dropout or (torch.is_grad_enabled() and request.q.requires_grad):
        return "it is for decoding: no dropout, no gradients, no log-sum-exp"
    if request.q.shape[1] * request.n_heads > FEW * request.n_kv_heads:
        return f"it is for up to {FEW} query rows of a key-value head"
    return None


def run(request: Request) -> Float[Tensor, "B T H E"]:
    k, v = request.k, request.v
    assert isinstance(k, QuantizedKV) and isinstance(v, QuantizedKV)
    b, t, h, d = request.q.shape
    q = request.q.transpose(1, 2).float().reshape(b, request.n_kv_heads, -1, d)  # (B, K, M, D), M = G · T
    quantized, scores = k.codes.tokens, q.new_empty(*q.shape[:3], k.shape[1])
    write_scores(q, k.codes, scores)
    torch.matmul(q, k.residual.float().mT, out=scores[..., quantized:])
    p = _weights(request, scores.mul_(request.scale).view(b, h, t, -1)).view_as(scores)
    out = mixed(p, v.codes).add_(p[..., quantized:] @ v.residual.float())
    return out.view(b, h, t, -1).transpose(1, 2).to(request.q.dtype)


def _weights(request: Request, scores: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
    """Scores to weights, in place; rows with nothing to see are zero."""
    if request.softcap is not None:
        scores = scores.div_(request.softcap).tanh_().mul_(request.softcap)
    mask, bias = request.mask(), request.dense_bias()
    if bias is not None:
        scores = scores.add_(bias)
    if mask is not None:
        scores = scores.masked_fill_(~mask, float("-inf"))
    if mask is None and bias is None:
        return torch.softmax(scores, -1)
    blind = scores.amax(-1, keepdim=True) == float("-inf")
    return torch.softmax(scores.masked_fill_(blind, 0.0), -1).masked_fill_(blind, 0.0)


def write_scores(q: Float[Tensor, "B K M D"], codes: QuantizedTensor, out: Float[Tensor, "B K M S"]) -> None:
    """Write q · k of the quantized keys to the first tokens of `out`."""
    if native.serves(codes, q.shape[2]):
        native.scores(q, codes, out)
        return
    n, g, step = codes.data.shape[2], codes.group, max(1, BLOCK // codes.group)
    scaled, shift = q[:, :, None] * codes.scale.float(), q[:, :, None] @ codes.offset().mT
    scores = out[..., : n * g].unflatten(-1, (n, g)).transpose(2, 3)  # (B, K, N, M, g)
    for i in range(0, n, step):
        block = slice(i, i + step)
        keys = unpack(codes.data[:, :, block], codes.bits).float()
        scores[:, :, block] = (scaled[:, :, block] @ keys.mT).add_(shift[:, :, block])


def mixed(p: Float[Tensor, "B K M S"], codes: QuantizedTensor) -> Float[Tensor, "B K M E"]:
    """Σ p v over the first tokens of `p`, which have codes."""
    if native.serves(codes, p.shape[2]):
        return native.mixed(p, codes)
    p = p[..., : codes.tokens]
    scale, zero = (t.flatten(2)[:, :, None] for t in (codes.scale.float(), codes.offset()))  # (B, K, 1, S)
    n, g, step = codes.data.shape[2], codes.group, max(1, BLOCK // codes.group)
    scaled, out = p * scale, (p * zero).sum(-1, keepdim=True).repeat(1, 1, 1, codes.data.shape[4])
    for i in range(0, n, step):
        values = unpack(codes.data[:, :, i : i + step], codes.bits).float().flatten(2, 3)
        out += scaled[..., i * g : (i + step) * g] @ values
    return out
