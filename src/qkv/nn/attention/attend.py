"""`attend`, the attention function that all layers call, and `merge`, which combines results over disjoint keys."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import torch
from jaxtyping import Float
from torch import Tensor

from ...core.layout import Layout
from ...core.several import in_words
from ...core.spec import brief
from ..kernels import backends, quantized_kv, reference
from ..kernels.plain import in_forward_mode
from ..kernels.plan import Plan
from ..kernels.request import Request, Result, ScoreFunction, WeightFunction
from ..kv_cache.quantization import QuantizedKV
from ..patterns.basic import Full, Pattern
from ..positions.base import Bias
from . import tap

_FULL = Full()
_MOST_HEADS = 128  # more heads than this are taken for tokens


class AttendOptions(TypedDict, total=False):
    """The keyword options of `attend` but `return_lse`, which decides what it returns."""

    pattern: Pattern
    layout: Layout | None
    kv_layout: Layout | None
    bias: Tensor | Bias | None
    scale: float | None
    dropout: float
    softcap: float | None
    backend: str
    plan: Plan | None
    clean: bool
    name: str
    score: ScoreFunction | None
    weighting: WeightFunction | None
    sinks: Tensor | None
    observe: Callable[[Callable[[range], Tensor]], None] | None


@overload
def attend(
    q: Tensor,
    k: Tensor | QuantizedKV,
    v: Tensor | QuantizedKV,
    *,
    return_lse: Literal[False] = False,
    **options: Unpack[AttendOptions],
) -> Tensor: ...
@overload
def attend(
    q: Tensor,
    k: Tensor | QuantizedKV,
    v: Tensor | QuantizedKV,
    *,
    return_lse: Literal[True],
    **options: Unpack[AttendOptions],
) -> tuple[Tensor, Tensor]: ...
@overload
def attend(
    q: Tensor,
    k: Tensor | QuantizedKV,
    v: Tensor | QuantizedKV,
    *,
    return_lse: bool,
    **options: Unpack[AttendOptions],
) -> Result: ...
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
    score: ScoreFunction | None = None,
    weighting: WeightFunction | None = None,
    sinks: Float[Tensor, " H"] | None = None,
    observe: Callable[[Callable[[range], Tensor]], None] | None = None,
) -> Result:
    """softmax(scale · QKᵀ + bias) V over the pairs that pattern, segments and padding allow (Vaswani et al. 2017).

    **Heads come third here**, (B, T, H, D): PyTorch's own function has them second. K key-value heads serve H query
    heads, K dividing H (grouped-query attention, Ainslie et al. 2023; K = 1 is multi-query, Shazeer 2019).

    Args:
        pattern: which keys each query may attend to. One that depends on positions needs layouts when T ≠ S.
        layout, kv_layout: positions of queries and keys; contiguous from 0 by default; that of keys is `layout` if T = S.
        bias: added to the scores: a tensor broadcastable to (B, H, T, S), where −∞ hides a pair, or a `Bias`.
        scale: 1/√D by default.
        dropout: probability of dropping an attention weight (the others are divided by 1 − p).
        softcap: scores become c · tanh(score / c), before the bias (Gemma 2).
        return_lse: also return log Σ exp(scores), (B, H, T) in fp32, for `merge`.
        backend: "auto", or the name of one; ValueError with the reason if that can't serve.
        k, v: tensors, or the `QuantizedKV` keys and values of a quantized cache.
        plan: shared by the layers of one pass.
        clean: padded keys and values are known to be zero.
        score: the comparison in place of the scaled dot product (`attention.scores`); holds all T·S scores.
        weighting: what turns scores into weights in place of the soft-max (`attention.weighting`); holds all T·S.
        sinks: a logit for each head beside the keys' logits; its share of the soft-max goes to no value.
        observe: called with a function that returns the weights (B, H, rows, S) of some query rows.

    Returns (B, T, H, E) in q's dtype, or the pair of it and the log-sum-exp. A query that sees no key gets 0, and a
    log-sum-exp of −∞. Raises ValueError for shapes that don't fit together, and if an alignment had to be guessed.
    """
    check_kinds(q, k, v, pattern, layout, kv_layout, bias, plan, sinks)
    check_tensors(q, k, v, by_layer=plan is not None)
    layout, kv_layout = layouts_of(q, k, pattern, layout, kv_layout, bias)
    check_layouts(q, k, layout, kv_layout)
    try:
        check_options(q, k, bias, scale, dropout, softcap)
        lse = return_lse or sinks is not None
    except (TypeError, RuntimeError) as error:
        given = {"bias": bias, "scale": scale, "dropout": dropout, "softcap": softcap, "return_lse": return_lse}
        raise in_words(error, attend, q, k, v, **given) from None
    if weighting is not None or sinks is not None:
        check_weighting(weighting, sinks, return_lse, q.shape[2])
    pattern = _sized(pattern, q, k) if pattern.unsized else pattern
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    plan = plan or Plan()
    options = (pattern, layout, kv_layout, bias, scale, dropout, softcap, lse, plan, name, score, weighting, sinks)
    plain = score is None and weighting is None and observe is None
    if not plain:
        _check_functions(score=score, observe=observe)
    may_stay = backend == "auto" and clean and plain and not tap.recording() and not in_forward_mode(q)
    result: Result | None = _over_quantized(q, k, v, options) if may_stay else None
    if result is None:
        k = k.dequantize() if isinstance(k, QuantizedKV) else k
        v = v.dequantize() if isinstance(v, QuantizedKV) else v
        if kv_layout.padding != "none" and not clean:
            hidden = ~kv_layout.valid[:, :, None, None]  # kernels multiply what they mask: 0 · NaN is NaN
            k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
        if layout.padding != "none" and torch.is_grad_enabled():
            q = q.masked_fill(~layout.valid[:, :, None, None], 0.0)  # as do the gradients of keys and values
        request = Request(q, k, v, *options)
        request = tap.offer(request) if tap.blocks else request
        if request.edits:
            result = reference.run(request)
        if observe is not None:
            observed = _observed(request, observe, backend)
            result = observed if result is None else result
        if result is None:
            result = backends.run(request, backend)
        if sinks is not None:
            result = _with_sinks(result, sinks, return_lse)
    return result if layout.padding == "none" else _silence(result, layout)


def _observed(request: Request, observe: Callable[[Callable[[range], Tensor]], None], backend: str) -> Tensor | None:
    """Give the weights to an observer. If it takes the weights of all rows at once, also returns their output."""
    reusable = backend == "auto" and request.layout.padding == "none" and not (request.dropout or request.return_lse)
    out: Tensor | None = None

    def weights(rows: range) -> Tensor:
        nonlocal out
        if reusable and rows == range(request.q.shape[1]):
            out, all_weights = reference.run_with_weights(request)
            return all_weights.detach()
        return tap.weights(request, rows=rows)

    observe(weights)
    return out


def _with_sinks(result: Result, sinks: Tensor, return_lse: bool) -> Result:
    """Add a logit to the denominator of attention: out · σ(lse − sink), exactly."""
    assert isinstance(result, tuple)
    out, lse = result
    sink = sinks[:, None].to(lse.dtype)
    kept = torch.sigmoid(lse - sink).transpose(1, 2).unsqueeze(-1)
    out = (out * kept).to(out.dtype)
    return (out, torch.logaddexp(lse, sink)) if return_lse else out


def _sized(pattern: Pattern, q: Tensor, k: Tensor | QuantizedKV) -> Pattern:
    """A pattern that depends on the length of rows, for these."""
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"{pattern} depends on the number of tokens of a row, including padding, unknown for {q.shape[1]} queries and "
            f"{k.shape[1]} keys; give pattern.over(width), and decode with another pattern"
        )
    return pattern.over(int(k.shape[1]), q.shape[2])


def _over_quantized(
    q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV, options: tuple[Any, ...]
) -> Tensor | None:
    """Attention over quantized keys and values; None if they are not quantized, or better dequantized."""
    if not isinstance(k, QuantizedKV) or not isinstance(v, QuantizedKV):
        return None
    request = Request(q, cast(Tensor, k), cast(Tensor, v), *options)
    return quantized_kv.run(request) if quantized_kv.refuses(request) is None else None


def merge(
    out1: Float[Tensor, "B T H E"], lse1: Float[Tensor, "B H T"], out2: Float[Tensor, "B T H E"], lse2: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint sets of keys, from the results over each.

    lse = log(e^lse1 + e^lse2), out = e^(lse1−lse) out1 + e^(lse2−lse) out2: the online soft-max (Milakov & Gimelshein
    2018), exact and associative. A side without keys (lse = −∞) contributes nothing.
    """
    try:
        top = torch.maximum(lse1, lse2).detach()
        dead = top == float("-inf")
        top = top.masked_fill(dead, 0.0)
        w1, w2 = (lse1 - top).exp(), (lse2 - top).exp()
        total = (w1 + w2).masked_fill(dead, 1.0)
        out1, out2 = (out * (w / total).transpose(1, 2).unsqueeze(-1) for out, w in ((out1, w1), (out2, w2)))
    except (TypeError, AttributeError) as error:
        raise in_words(error, merge, out1, lse1, out2, lse2) from None
    return (out1 + out2).to(out1.dtype), (top + total.log()).masked_fill(dead, float("-inf"))


def layouts_of(
    q: Tensor, k: Tensor | QuantizedKV, pattern: Pattern, layout: Layout | None, kv_layout: Layout | None, bias: object
) -> tuple[Layout, Layout]:
    """Fill in missing layouts. Raises ValueError if they are ambiguous."""
    t, s = q.shape[1], k.shape[1]
    if kv_layout is None:
        if t != s and (pattern.positional or isinstance(bias, Bias) or layout is not None):
            raise ValueError(
                f"{t} queries and {s} keys: their relative positions are unknown, and {brief(pattern)} with a layout or a "
                "position bias depends on them; give layout= and kv_layout="
            )
        kv_layout = layout if layout is not None else Layout.full(s, device=k.device)
        layout = layout or kv_layout if t == s else layout
    elif layout is None and (pattern.positional or isinstance(bias, Bias)):
        raise ValueError(
            f"kv_layout= was given without layout=, which {brief(pattern)} needs for the queries; give both"
        )
    return layout or Layout.full(t, device=q.device), kv_layout


_KEYS = (Tensor, QuantizedKV)
_LAYOUT, _BIAS, _PLAN, _SINKS = (NoneType, Layout), (NoneType, Tensor, Bias), (NoneType, Plan), (NoneType, Tensor)


def check_kinds(
    q: object,
    k: object,
    v: object,
    pattern: object,
    layout: object,
    kv_layout: object,
    bias: object,
    plan: object,
    sinks: object,
) -> None:
    """Raise ValueError for an argument of a wrong type."""
    if (
        isinstance(q, Tensor)
        and isinstance(k, _KEYS)
        and isinstance(v, _KEYS)
        and isinstance(pattern, Pattern)
        and isinstance(layout, _LAYOUT)
        and isinstance(kv_layout, _LAYOUT)
        and isinstance(bias, _BIAS)
        and isinstance(plan, _PLAN)
        and isinstance(sinks, _SINKS)
    ):
        return
    given: tuple[tuple[str, object, tuple[type, ...], str], ...] = (
        ("q", q, (Tensor,), "a tensor; give torch.as_tensor(q) for an array"),
        ("k", k, _KEYS, "a tensor; give torch.as_tensor(k) for an array"),
        ("v", v, _KEYS, "a tensor; give torch.as_tensor(v) for an array"),
        ("pattern", pattern, (Pattern,), "a pattern, such as qkv.causal() or qkv.full()"),
        ("layout", layout, _LAYOUT, "a qkv.Layout; Layout.from_mask makes one of a mask of padding"),
        ("kv_layout", kv_layout, _LAYOUT, "a qkv.Layout; Layout.from_mask makes one of a mask of padding"),
        ("bias", bias, _BIAS, "a tensor or a position scheme's bias"),
        ("plan", plan, _PLAN, "a Plan, which the layers of one pass share; leave it out"),
        ("sinks", sinks, _SINKS, "a tensor of one logit for each head"),
    )
    name, value, _, wanted = next(one for one in given if not isinstance(one[1], one[2]))
    raise ValueError(f"{name} is {wanted}, not {brief(value)}")


def check_tensors(q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV, by_layer: bool = False) -> None:
    """Raise ValueError if the shapes, dtypes or devices of queries, keys and values don't match.

    Warns if the axes look like PyTorch's order, except `by_layer`, which is for calls by layers.
    """
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q, k, v are (batch, length, heads, width); got {q.ndim}, {k.ndim} and {v.ndim} axes")
    if 0 in (*q.shape[2:], *k.shape[2:], v.shape[2]):
        raise ValueError(
            "q, k, v are (batch, length, heads, width) with at least one head of width 1 or more; got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if not (q.dtype == k.dtype == v.dtype and q.is_floating_point() and q.device == k.device == v.device):
        _check_dtypes(q, k, v)
    if not by_layer and q.shape[2] > _MOST_HEADS and not torch.compiler.is_compiling():
        _warn_about_heads(q)
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"shapes (batch, length, heads, width) don't fit together: q {tuple(q.shape)}, k {tuple(k.shape)}, "
            f"v {tuple(v.shape)}"
        )
    if q.shape[2] % k.shape[2]:
        raise ValueError(
            f"{k.shape[2]} key-value heads can't share {q.shape[2]} query heads: the first must divide the second"
        )


def _check_dtypes(q: Tensor, k: Tensor | QuantizedKV, v: Tensor | QuantizedKV) -> None:
    """Raise ValueError for dtypes or devices that differ; autocast unifies dtypes by itself."""
    dtypes = [x.dtype for x in (q, k, v)]
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    if not all(dtype.is_floating_point for dtype in dtypes):
        raise ValueError(f"q, k, v must be floating point, not {names}; give e.g. q.float()")
    if len(set(dtypes)) > 1 and not torch.is_autocast_enabled(q.device.type):
        raise ValueError(f"q, k, v must have one dtype, not {names}; cast them to one, such as k.to(q.dtype)")
    if len({x.device for x in (q, k, v)}) > 1:
        raise ValueError(f"q, k, v must be on one device, not {q.device}, {k.device} and {v.device}; move them to one")


def _warn_about_heads(q: Tensor) -> None:
    _, tokens, heads, _ = q.shape
    if heads > tokens:
        warnings.warn(
            f"attend() got {tokens} tokens of {heads} heads: axes are (batch, length, heads, width), heads third; for "
            "PyTorch's order (batch, heads, length, width), give q.transpose(1, 2), and the same for k and v",
            stacklevel=4,
        )


def check_layouts(q: Tensor, k: Tensor | QuantizedKV, layout: Layout, kv_layout: Layout) -> None:
    """Raise ValueError if a layout is not for the rows and tokens of its tensor."""
    for what, where, x in (("layout", layout, q), ("kv_layout", kv_layout, k)):
        b, t = where.shape
        if t != x.shape[1] or b not in (1, x.shape[0]):
            raise ValueError(f"{what} is for {b} rows of {t} tokens, the tensor has {x.shape[0]} of {x.shape[1]}")


def check_options(
    q: Tensor,
    k: Tensor | QuantizedKV,
    bias: Tensor | Bias | None,
    scale: float | None,
    dropout: float,
    softcap: float | None,
) -> None:
    """Raise ValueError if an option is out of range, or the bias does not broadcast to the scores."""
    if isinstance(bias, Tensor):
        _check_bias(bias, (q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is a probability in [0, 1), not {dropout}")
    if softcap is not None and not (softcap > 0 and math.isfinite(softcap)):
        raise ValueError(f"softcap is a positive number, not {softcap}")


def _check_functions(**named: object) -> None:
    for name, function in named.items():
        if function is not None and not callable(function):
            raise ValueError(f"{name} is a function, not {brief(function)}")


def check_weighting(weighting: WeightFunction | None, sinks: Tensor | None, return_lse: bool, n_heads: int) -> None:
    if weighting is not None and not hasattr(weighting, "weights"):
        raise ValueError(f"weighting is a function of scores, such as a qkv.Weighting, not {brief(weighting)}")
    if weighting is not None and (sinks is not None or return_lse):
        wanted = "sinks belong" if sinks is not None else "a log-sum-exp belongs"
        raise ValueError(f"{wanted} to the soft-max, and the weighting is {weighting.kind!r}; leave one of them out")
    if sinks is not None and sinks.shape != (n_heads,):
        raise ValueError(f"sinks are one logit for each of {n_heads} heads, not {tuple(sinks.shape)}")


def _check_bias(bias: Tensor, scores: tuple[int, ...]) -> None:
    if not bias.is_floating_point():
        raise ValueError(
            f"a bias is added to scores and must be floating point, not {bias.dtype}; to mask pairs, give a pattern, a "
            "layout (Layout.from_mask) or −∞ in the bias"
        )
    if bias.ndim > 4 or any(n not in (1, m) for n, m in zip(reversed(bias.shape), reversed(scores), strict=False)):
        raise ValueError(f"a bias of shape {tuple(bias.shape)} does not broadcast to scores (B, H, T, S) = {scores}")


def _silence(result: Result, layout: Layout) -> Result:
    """Zero the results of padded queries."""
    hidden = ~layout.valid
    if isinstance(result, tuple):
        out, lse = result
        return out.masked_fill(hidden[:, :, None, None], 0.0), lse.masked_fill(hidden[:, None], float("-inf"))
    return result.masked_fill(hidden[:, :, None, None], 0.0)
