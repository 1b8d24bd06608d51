"""The one place where queries meet keys."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ..core.forward_mode import in_forward_mode
from ..core.layout import Layout
from ..kernels import quantized_kv as coded
from ..kernels.backends import BACKENDS, choose
from ..kernels.plan import Plan
from ..kernels.request import Comparison, Request, Result, Weights, default_scale
from ..kv_cache.quantization import QuantizedKV
from ..patterns.basic import Full, Pattern
from ..positions.base import Bias
from . import tap

_FULL = Full()
_MOST_HEADS = 128  # above which a number of heads is taken for one of tokens


def attend(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"] | QuantizedKV,
    v: Float[Tensor, "B S K E"] | QuantizedKV,
    *,
    pattern: Pattern = _FULL,
    layout: Layout | None = None,
    kv_layout: Layout | None = None,
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    return_lse: bool = False,
    backend: str = "auto",
    plan: Plan | None = None,
    clean: bool = False,
    name: str = "",
    score: Comparison | None = None,
    weighting: Weights | None = None,
    sinks: Float[Tensor, " H"] | None = None,
    observe: Callable[[Callable[[range], Tensor]], None] | None = None,
) -> Any:
    """softmax(scale · QKᵀ + bias) V over the pairs that pattern, segments and padding allow (Vaswani et al. 2017).

    **Heads come third here**, (B, T, H, D): PyTorch's own function has them second. K key-value heads serve H query
    heads, K dividing H (grouped-query attention, Ainslie et al. 2023; K = 1 is multi-query, Shazeer 2019).

    Args:
        pattern: who may look at whom. One that depends on positions needs layouts when T ≠ S.
        layout, kv_layout: where queries and keys are; contiguous from 0 by default; keys as queries where T = S.
        bias: added to the scores: a tensor broadcastable to (B, H, T, S), where −∞ hides a pair, or a `Bias`.
        scale: 1/√D by default.
        dropout: probability at which attention weights are dropped (the others grow by 1/(1 − p)).
        softcap: scores become c · tanh(score / c), before the bias (Gemma 2).
        return_lse: also return log Σ exp(scores), (B, H, T) in fp32, for `merge`.
        backend: "auto", or one by name, which raises ValueError with its reason when it cannot serve.
        k, v: tensors, or `QuantizedKV` keys and values, as quantized caches have them.
        plan: what layers of one pass share. clean: padded keys and values are known to be zero already.
        score: what compares queries and keys in place of the scaled dot product (`attention.scores`): all T·S are held.
        weighting: what makes weights of scores in place of the soft-max (`attention.weighting`): all T·S are held.
        sinks: a logit for each head beside those of the keys, whose share of the soft-max goes to no value.
        observe: called afterwards with a function that gives the weights (B, H, rows, S) of some query rows.

    Returns (B, T, H, E) in q's dtype, or the pair of it and the log-sum-exp. A query that may see nothing gets 0, and
    a log-sum-exp of −∞. Raises ValueError for shapes that don't meet, and where an alignment would have to be guessed.
    """
    check_axes(q, k, v)
    check_dtypes(q, k, v)
    if plan is None and not torch.compiler.is_compiling():  # a caller by hand, not a layer
        _warn_of_heads(q)
    layout, kv_layout = layouts_of(q, k, pattern, layout, kv_layout, bias)
    check(q, k, v, layout, kv_layout, bias, dropout, softcap)
    check_weighting(weighting, sinks, return_lse, q.shape[2])
    pattern = _sized(pattern, q, k) if pattern.unsized else pattern
    scale = default_scale(q.shape[-1]) if scale is None else scale
    lse = return_lse or sinks is not None
    about = (
        pattern,
        layout,
        kv_layout,
        bias,
        scale,
        dropout,
        softcap,
        lse,
        plan or Plan(),
        name,
        score,
        weighting,
        sinks,
    )
    plain = score is None and weighting is None and observe is None
    coded_too = backend == "auto" and clean and plain and not tap.recording() and not in_forward_mode(q)
    result: Result | None = _over_codes(q, k, v, about) if coded_too else None
    if result is None:
        k, v = (x.dequantize() if isinstance(x, QuantizedKV) else x for x in (k, v))
        if kv_layout.padding != "none" and not clean:
            hidden = ~kv_layout.valid[:, :, None, None]  # kernels multiply what they mask: 0 · NaN is NaN
            k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
        if layout.padding != "none" and torch.is_grad_enabled():
            q = q.masked_fill(~layout.valid[:, :, None, None], 0.0)  # so do gradients of keys and values
        request = Request(q, k, v, *about)
        tap.offer(request)
        result = BACKENDS[choose(request, backend)].run(request)
        if observe is not None:
            observe(lambda rows: tap.weights(request, rows=rows))
        if sinks is not None:
            result = _drained(result, sinks, return_lse)
    return result if layout.padding == "none" else _silence(result, layout)


def _drained(result: Result, sinks: Tensor, return_lse: bool) -> Result:
    """Attention with a further logit in the denominator, from attention without: out · σ(lse − sink), exact."""
    assert isinstance(result, tuple)
    out, lse = result
    sink = sinks[:, None].to(lse.dtype)
    kept = torch.sigmoid(lse - sink).transpose(1, 2).unsqueeze(-1)
    out = (out * kept).to(out.dtype)
    return (out, torch.logaddexp(lse, sink)) if return_lse else out


def _sized(pattern: Pattern, q: Tensor, k: Tensor | QuantizedKV) -> Pattern:
    """A pattern that depends on how many tokens rows have, for these."""
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"{pattern} depends on how many tokens a row has, padding included, which {q.shape[1]} queries and "
            f"{k.shape[1]} keys don't say; give pattern.over(width), and decode with another pattern"
        )
    return pattern.over(int(k.shape[1]), q.shape[2])


def _over_codes(q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV, about: tuple[Any, ...]) -> Tensor | None:
    """The result where keys and values are those of a quantized cache, and best left as they are; else None."""
    if not isinstance(k, QuantizedKV) or not isinstance(v, QuantizedKV):
        return None
    request = Request(q, cast(Tensor, k), cast(Tensor, v), *about)
    return coded.run(request) if coded.refuses(request) is None else None


def merge(
    out1: Float[Tensor, "B T H E"], lse1: Float[Tensor, "B H T"], out2: Float[Tensor, "B T H E"], lse2: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint sets of keys, from the results over each.

    lse = log(e^lse1 + e^lse2), out = e^(lse1−lse) out1 + e^(lse2−lse) out2: the online soft-max (Milakov & Gimelshein
    2018), exact and associative. A side that saw nothing (lse = −∞) contributes nothing.
    """
    top = torch.maximum(lse1, lse2).detach()
    dead = top == float("-inf")
    top = top.masked_fill(dead, 0.0)
    w1, w2 = (lse1 - top).exp(), (lse2 - top).exp()
    total = (w1 + w2).masked_fill(dead, 1.0)
    out1, out2 = (out * (w / total).transpose(1, 2).unsqueeze(-1) for out, w in ((out1, w1), (out2, w2)))
    return (out1 + out2).to(out1.dtype), (top + total.log()).masked_fill(dead, float("-inf"))


def layouts_of(
    q: Tensor, k: Tensor | QuantizedKV, pattern: Pattern, layout: Layout | None, kv_layout: Layout | None, bias: object
) -> tuple[Layout, Layout]:
    """Fill in what was left out, where there is only one thing that it can mean."""
    t, s = q.shape[1], k.shape[1]
    if kv_layout is None:
        if t != s and (pattern.positional or isinstance(bias, Bias) or layout is not None):
            raise ValueError(
                f"{t} queries and {s} keys: where they stand to one another is not known, and {pattern!r} with a layout "
                "or a position bias depends on it; give layout= and kv_layout="
            )
        kv_layout = layout if layout is not None else Layout.full(s, device=k.device)
        layout = layout or kv_layout if t == s else layout
    elif layout is None and (pattern.positional or isinstance(bias, Bias)):
        raise ValueError(f"kv_layout= says where the keys are; {pattern!r} needs layout= for the queries too")
    return layout or Layout.full(t, device=q.device), kv_layout


def check_axes(q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV) -> None:
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q, k, v are (batch, length, heads, width); got {q.ndim}, {k.ndim} and {v.ndim} axes")
    if 0 in (*q.shape[2:], *k.shape[2:], v.shape[2]):
        raise ValueError(
            "q, k, v are (batch, length, heads, width) with at least one head of width 1 or more; got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )


def check_dtypes(q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV) -> None:
    """Autocast brings what meets to one dtype by itself."""
    dtypes = [x.dtype for x in (q, k, v)]
    if not all(dtype.is_floating_point for dtype in dtypes):
        named = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"q, k, v are floating point, and here they are {named}; give e.g. q.float()")
    if len(set(dtypes)) > 1 and not torch.is_autocast_enabled(q.device.type):
        named = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"q, k, v have one dtype, and here they are {named}; cast them to one, such as k.to(q.dtype)")
    if len({x.device for x in (q, k, v)}) > 1:
        raise ValueError(
            f"q, k, v are on one device, and here on {q.device}, {k.device} and {v.device}; move them to one"
        )


def _warn_of_heads(q: Tensor) -> None:
    _, tokens, heads, _ = q.shape
    if heads > max(_MOST_HEADS, tokens):
        warnings.warn(
            f"attend() was given {tokens} tokens of {heads} heads: axes are (batch, length, heads, width), heads third; if "
            "yours are (batch, heads, length, width), as PyTorch has them, give q.transpose(1, 2), and k and v alike",
            stacklevel=3,
        )


def check(
    q: Tensor,
    k: Tensor | QuantizedKV,
    v: Tensor | QuantizedKV,
    layout: Layout,
    kv_layout: Layout,
    bias: Tensor | Bias | None,
    dropout: float,
    softcap: float | None,
) -> None:
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"shapes (batch, length, heads, width) don't meet: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        )
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"{k.shape[2]} key-value heads can't share {q.shape[2]} query heads: it has to divide them")
    for what, where, x in (("layout", layout, q), ("kv_layout", kv_layout, k)):
        b, t = where.shape
        if t != x.shape[1] or b not in (1, x.shape[0]):
            raise ValueError(f"{what} is for {b} rows of {t} tokens, the tensor has {x.shape[0]} of {x.shape[1]}")
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    if isinstance(bias, Tensor):
        _check_bias(bias, scores)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is a probability in [0, 1), not {dropout}")
    if softcap is not None and not (softcap > 0 and math.isfinite(softcap)):
        raise ValueError(f"softcap is a positive number, not {softcap}")


def check_weighting(weighting: Weights | None, sinks: Tensor | None, return_lse: bool, n_heads: int) -> None:
    if weighting is not None and (sinks is not None or return_lse):
        wanted = "sinks belong" if sinks is not None else "a log-sum-exp belongs"
        raise ValueError(f"{wanted} to the soft-max, and the weighting is {weighting.kind!r}; leave one of them out")
    if sinks is not None and sinks.shape != (n_heads,):
        raise ValueError(f"sinks are one logit for each of {n_heads} heads, not {tuple(sinks.shape)}")


def _check_bias(bias: Tensor, scores: tuple[int, ...]) -> None:
    if not bias.is_floating_point():
        raise ValueError(
            f"a bias is added to scores and has to be floating point, not {bias.dtype}; what may be seen at all is said by "
            "a pattern, a layout (Layout.from_mask) or −∞ in the bias"
        )
    if bias.ndim > 4 or any(n not in (1, m) for n, m in zip(reversed(bias.shape), reversed(scores), strict=False)):
        raise ValueError(f"a bias of shape {tuple(bias.shape)} does not broadcast to scores (B, H, T, S) = {scores}")


def _silence(result: Result, layout: Layout) -> Result:
    """Padded queries attend to nothing."""
    hidden = ~layout.valid
    if isinstance(result, tuple):
        out, lse = result
        return out.masked_fill(hidden[:, :, None, None], 0.0), lse.masked_fill(hidden[:, None], float("-inf"))
    return result.masked_fill(hidden[:, :, None, None], 0.0)
