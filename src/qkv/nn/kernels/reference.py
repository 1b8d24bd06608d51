"""Reference attention, softmax(scale · QKᵀ + bias) V as the equation says, against which other backends are tested."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .native.dropout import DropoutMask, can_replay, draw_seed, levels
from .request import Request, Result


def refuses(request: Request) -> str | None:
    return None


def scores(request: Request, mask: Tensor | None) -> tuple[Float[Tensor, "B H T S"], Tensor | None]:
    """Scores in at least fp32 with masked pairs at the dtype's minimum, and the mask (−∞ in a bias masks too).

    Edits of a request are for the scores and weights of all its heads and queries.
    """
    q, k = request.q.transpose(1, 2), _per_query_head(request.k, request)
    dtype = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(dtype), k.to(dtype)
    s = (q @ k.mT) * request.scale if request.score is None else request.score(q, k)
    if request.score is not None:
        mask = _and_finite(mask, s)
    if request.softcap is not None:
        s = request.softcap * torch.tanh(s / request.softcap)
    bias = request.dense_bias()
    if bias is not None:
        s, mask = s + bias.to(dtype), _and_finite(mask, bias)
    if mask is not None:
        s = torch.where(mask, s, torch.finfo(dtype).min)
    return request.edited("scores", s), mask


def _and_finite(mask: Tensor | None, x: Tensor) -> Tensor:
    """The mask without pairs that −∞ hides."""
    visible = x != float("-inf")
    return visible if mask is None else mask & visible


def weights(request: Request, mask: Tensor | None) -> Float[Tensor, "B H T S"]:
    """Attention weights, without the share of sinks; rows with nothing to see are zero."""
    s, mask = scores(request, mask)
    w = _weights(request, s, mask)
    if request.sinks is not None:
        w = w * torch.sigmoid(torch.logsumexp(s, -1) - request.sinks[:, None].to(s.dtype)).unsqueeze(-1)
    return w


def _weights(request: Request, s: Float[Tensor, "B H T S"], mask: Tensor | None) -> Float[Tensor, "B H T S"]:
    w = torch.softmax(s, -1) if request.weighting is None else request.weighting.weights(s, mask)
    return request.edited("weights", w if mask is None else torch.where(mask, w, 0.0))


def run(request: Request) -> Result:
    """The output, and the log-sum-exp if it is wanted."""
    out, s, _, mask = _attend(request)
    if not request.return_lse:
        return out
    lse = torch.logsumexp(s, -1)
    if mask is not None:
        lse = lse.masked_fill(~mask.any(-1).expand_as(lse), float("-inf"))
    return out, lse


def run_with_weights(request: Request) -> tuple[Tensor, Float[Tensor, "B H T S"]]:
    """The output, and the weights that gave it."""
    out, _, w, _ = _attend(request)
    return out, w


def _attend(request: Request) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Output, scores, weights and mask."""
    mask = request.mask()
    # NaN and Inf in a masked key or value must not leak through 0 · NaN, forward or backward: they are zeroed, and
    # restored only for queries that see them.
    bad = ~(request.k.isfinite().all(-1) & request.v.isfinite().all(-1))  # (B, S, K)
    k, v = (t.masked_fill(bad[..., None], 0.0) for t in (request.k, request.v))
    clean = Request(**{**request.__dict__, "k": k, "v": v})
    s, mask = scores(clean, mask)
    w = _weights(request, s, mask)
    out = dropped(w, request) @ _per_query_head(v, request).to(w.dtype)
    group = request.n_heads // request.n_kv_heads
    seen = bad.transpose(1, 2).repeat_interleave(group, 1)[:, :, None]  # (B, H, 1, S)
    poisoned = (seen if mask is None else mask & seen).any(-1, keepdim=True)
    out = out.masked_fill(poisoned, float("nan")).transpose(1, 2).to(request.q.dtype)
    return out, s, w, mask


def dropped(w: Float[Tensor, "B H T S"], request: Request) -> Float[Tensor, "B H T S"]:
    """Dropout of weights, by the mask that all kernels have for one seed."""
    if not request.dropout:
        return w
    if not can_replay(w):
        return torch.nn.functional.dropout(w, request.dropout)
    mask = DropoutMask(int(draw_seed()), levels(request.dropout))
    b, h, t, s = w.shape
    return torch.where(mask.weights((b, h, t, s), w.device, of=request.weight_places()), w * mask.grown, 0.0)


def _per_query_head(x: Tensor, request: Request) -> Tensor:
    """(B, S, K, D) → (B, H, S, D): each key-value head serves H/K query heads."""
    return x.transpose(1, 2).repeat_interleave(request.n_heads // request.n_kv_heads, 1)
