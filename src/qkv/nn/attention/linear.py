"""Linear attention (Katharopoulos et al. 2020): a feature map of queries and keys in place of the soft-max.

exp(q·k) becomes φ(q)·φ(k), in time and memory linear in the length. Three algorithms have equal results. If every query
sees every key, keys and values are summed once. Causal training computes products within chunks and carries one sum
from chunk to chunk. Decoding is a recurrence with that sum as its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.device import KeepsDtype
from ...core.layout import Layout
from ...core.spec import Cost
from ..kernels.hidden_nan import confined, may_have_nan
from ..kv_cache.full import LayerState, SlotTables
from ..patterns.algebra import parts_of
from ..patterns.basic import Causal, Documents, Full, Pattern
from ..patterns.documents import document_numbers
from .feature_maps import Elu1, FeatureMap, Features
from .mixer import Pass, refuse_crossing
from .multi_head import Attention, MultiHeadAttention


class LinearAttention(Attention, kind="linear-attention"):
    """φ(Q) (φ(K)ᵀ V) / φ(Q) Σ φ(K) for each head, where φ is `features` of √scale · q and √scale · k.

    `scale` is 1 by default, and 1/√d_head for features that approximate a soft-max. The pattern is full or causal; packed
    documents are always isolated. Rotary positions are applied before φ. The decoding state has K · R · (E + 1) numbers for
    each row, whatever its length.
    """

    features: FeatureMap = Elu1()

    adds_bias, divides = False, "sums"

    @model_validator(mode="after")
    def _without_weights(self) -> LinearAttention:
        refuse_options(self, "dropout", "softcap", "backend")
        check_full_or_causal(self.kind, self.pattern)
        return self

    @property
    def causal(self) -> bool:
        return is_causal(self.pattern)

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadLinearAttention(self, d_model, name)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        if not self.causal:
            raise ValueError(f"{self.kind} decodes token by token with pattern=causal() only, not with {self.pattern}")
        return LinearState()

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        """Bytes of sums in fp32 (in fp64 if the model is), and of the largest log of each head if features have
        logs."""
        _, k, d, e = self.widths(d_model)
        return {"sums over tokens": max(itemsize, 4) * k * (self.features.width(d) * (e + 1) + self.features.has_log)}

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """4 · T · R · (E + 1) for each head where K = H: the sums over keys, and their products with queries."""
        h, k, d, e = self.widths(d_model)
        mapped = (h + k) * (self.features.flops(d) + 2 * self.features.width(d) * (e + 1))
        return super().cost(d_model, tokens) + Cost(0, tokens * mapped)


def refuse_options(spec: Attention, *names: str) -> None:
    """Raise ValueError for options that a mechanism does not have."""
    changed = [name for name in names if getattr(spec, name) != type(spec).model_fields[name].default]
    if changed:
        raise ValueError(f"{spec.kind} has no {changed[0]}, which belongs to attention; leave it out")


def check_full_or_causal(kind: str, pattern: Pattern) -> None:
    """Raise ValueError for any other pattern."""
    if not all(isinstance(part, Full | Causal | Documents) for part in parts_of(pattern)):
        raise ValueError(
            f"the pattern of {kind} is full() or causal(), not {pattern}; for other patterns take attention"
        )


def is_causal(pattern: Pattern) -> bool:
    return any(isinstance(part, Causal) for part in parts_of(pattern))


def refuse_bias(kind: str, run: Pass) -> None:
    """Raise ValueError for positions that are added to scores."""
    if run.bias is not None:
        raise ValueError(
            f"{kind} has no scores of token pairs to which {run.bias.scheme} could be added; take none, sinusoidal, learned "
            "or rotary positions"
        )


class MultiHeadLinearAttention(KeepsDtype, MultiHeadAttention):
    """The module of `LinearAttention`. Parameters as in attention; random features are the buffer `directions`."""

    has_weights: ClassVar[bool] = False
    exact: ClassVar[tuple[str, ...]] = ("directions",)  # drawn once and never trained
    directions: Tensor | None

    def __init__(self, spec: LinearAttention, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        self.kind, self.features, self.causal = spec.kind, spec.features, spec.causal
        scale = spec.features.scale(self.d_head) if spec.scale is None else spec.scale
        self.root = scale**0.5
        drawn, here = spec.features.directions(self.d_head, name), torch.empty(()).device
        self.register_buffer("directions", None if drawn is None else drawn.to(here))

    def mixed(
        self, x: Float[Tensor, "B T M"], run: Pass, layout: Layout, state: LayerState | None = None
    ) -> Float[Tensor, "B T H E"]:
        refuse_bias(self.kind, run)
        q = self.normed(self.q(x), self.q_norm)
        k, v = self._keys_values(x)
        q, k = run.rotate_queries(q), run.rotate_keys(k)
        assert state is None or isinstance(state, LinearState)
        with torch.autocast(x.device.type, enabled=False):
            attended = run.linear or linear_attention
            return attended(self._mapped(q), self._mapped(k), v, layout, self.causal, state)

    def _mapped(self, x: Float[Tensor, "B T H D"]) -> Features:
        wide = torch.promote_types(x.dtype, torch.float32)
        return self.features.features(x.to(wide) * self.root, self.directions)


# -- the mathematics ---------------------------------------------------------------------------------------------------


CHUNK = 64  # tokens; scores are O(T · CHUNK) and sums O(T · R · E / CHUNK) numbers
STRIP = 1024  # tokens of a long row at a time, so intermediate results fit the cache
LOW = -1e30  # stands for log 0: its exponential is 0, and differences are finite


class LinearState:
    """The decoding state: Σ_s φ(k_s) [v_s, 1]ᵀ of each head, the paper's S with z as last column, in fp32.

    Where features have a `log`, the sum is of φ · e^(−top) with the largest log so far, `top`.
    """

    def __init__(self, sums: Float[Tensor, "B K R E1"] | None = None, top: Float[Tensor, "B K"] | None = None) -> None:
        self.sums, self.top = sums, top

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        if self.sums is not None:
            self.sums = self.sums.index_select(0, rows)
        if self.top is not None:
            self.top = self.top.index_select(0, rows)

    def check_rewind(self, n: int) -> None:
        if n:
            raise ValueError(
                f"linear attention keeps only sums over all tokens and can't rewind {n}; start again from the prompt"
            )

    def rewind(self, n: int) -> None:
        """Never called with n > 0: `check_rewind` refuses."""

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"sums": self.sums, "top": self.top}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.sums, self.top = tensors.get("sums"), tensors.get("top")

    @property
    def parts(self) -> dict[str, int]:
        return {"sums over tokens": self.nbytes}

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors().values())


def linear_attention(
    q: Features,
    k: Features,
    v: Float[Tensor, "B T K E"],
    layout: Layout,
    causal: bool = False,
    state: LinearState | None = None,
    chunk: int = CHUNK,
) -> Float[Tensor, "B T H E"]:
    """Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s) (Katharopoulos et al. 2020, eq. 4), sums in fp32 or wider.

    s runs over the real tokens of t's document, with `causal` over those up to t. Tokens are in order of position, and
    documents follow one another. K key-value heads serve H query heads, K dividing H. A query whose denominator is 0 gets
    0, as does padding. A `state` has the sums over earlier tokens, and is updated. On CPUs, NaN and infinities reach only
    the queries that see them.

    Raises ValueError for a state with rows of several documents, or without `causal`.
    """
    docs, tokens = document_numbers(layout), v.shape[1]
    if state is not None and (docs is not None or not causal):
        raise ValueError("a decoding state needs causal=True and one document a row; give a layout without segments")
    before = None if state is None or tokens == 1 else LinearState(state.sums, state.top)
    attended = partial(_by_strips, layout=layout, docs=docs, causal=causal, chunk=chunk)
    with torch.autocast(v.device.type, enabled=False):
        out = attended(q, k, v, state)
        if tokens > 1 and (causal or docs is not None) and may_have_nan(out):
            out = _confined(out, q, k, v, before, attended)
    return out


def _by_strips(
    q: Features,
    k: Features,
    v: Tensor,
    state: LinearState | None,
    layout: Layout,
    docs: Tensor | None,
    causal: bool,
    chunk: int,
) -> Float[Tensor, "B T H E"]:
    """Compute `_attended`. A long causal row is computed in strips, which carry the state."""
    if not causal or docs is not None or v.shape[1] <= STRIP:
        return _attended(q, k, v, layout, docs, causal, state, chunk)
    carried = LinearState() if state is None else state
    parts = zip(_split(q), _split(k), v.split(STRIP, 1), range(0, v.shape[1], STRIP), strict=True)
    return torch.cat(
        [_attended(q, k, v, layout.slice(at, at + v.shape[1]), None, True, carried, chunk) for q, k, v, at in parts], 1
    )


def _confined(
    out: Float[Tensor, "B T H E"],
    q: Features,
    k: Features,
    v: Float[Tensor, "B T K E"],
    before: LinearState | None,
    attended: Callable[[Features, Features, Tensor, LinearState | None], Tensor],
) -> Float[Tensor, "B T H E"]:
    """Recompute `out`, and let NaN and infinities reach only the queries that see them.

    To find these queries, `attended` is computed with features of 1, and values of 1 if a token is not finite.
    """
    (q, bad_q), (k, bad_k) = _finite(q), _finite(k)
    bad = ~v.isfinite()
    clean = attended(q, k, v.masked_fill(bad, 0.0), before)
    q, k = (Features(torch.ones_like(x.values[..., :1])) for x in (q, k))
    seen = attended(q, k, (bad | bad_k[..., None]).float(), None) > 0
    return confined(out, clean, seen | bad_q[..., None])


def _finite(x: Features) -> tuple[Features, Tensor]:
    """Replace the features of tokens that are not finite by zeros. Returns the features and a mask of these tokens."""
    values, log = x
    bad = ~values.isfinite().all(-1)
    bad = bad if log is None else bad | ~log.isfinite()
    log = None if log is None else log.masked_fill(bad, LOW)
    return Features(values.masked_fill(bad[..., None], 0.0), log), bad


def sums_over(k: Features, v: Float[Tensor, "B T K E"], layout: Layout) -> Float[Tensor, "B K R E1"]:
    """Σ_s φ(k_s) [v_s, 1]ᵀ over the real tokens, for features without a log: what a `LinearState` holds after them."""
    problem = LinearProblem.of(k, k, v, layout, None)
    return torch.einsum("btkr,btke->bkre", problem.k, problem.v)


def from_sums(
    q: Features, sums: Float[Tensor, "B K R E1"], layout: Layout, dtype: torch.dtype
) -> Float[Tensor, "B T H E"]:
    """The output for queries that all see the same sums."""
    grouped = q.values.unflatten(2, (sums.shape[1], -1)).to(sums.dtype)
    out = torch.einsum("btkgr,bkre->btkge", grouped, sums).flatten(2, 3)
    out = out[..., :-1] / out[..., -1:].masked_fill(out[..., -1:] == 0, 1.0)
    return out.masked_fill(~layout.valid[:, :, None, None], 0.0).to(dtype)


def _split(features: Features) -> list[Features]:
    values = features.values.split(STRIP, 1)
    logs = [None] * len(values) if features.log is None else features.log.split(STRIP, 1)
    return [Features(value, log) for value, log in zip(values, logs, strict=True)]


def _attended(
    q: Features,
    k: Features,
    v: Tensor,
    layout: Layout,
    docs: Tensor | None,
    causal: bool,
    state: LinearState | None,
    chunk: int,
) -> Float[Tensor, "B T H E"]:
    problem = LinearProblem.of(q, k, v, layout, docs)
    if state is not None and v.shape[1] == 1:
        sums = _next(problem, state)
    elif causal or docs is not None:
        sums = _chunked(problem, causal, state, min(chunk, v.shape[1]))
    else:
        sums = _everything(problem)
    total = sums[..., -1:]
    out = sums[..., :-1] / total.masked_fill(total == 0, 1.0)
    out = out if layout.padding == "none" else out.masked_fill(~layout.valid[:, :, None, None], 0.0)
    return out.to(v.dtype)


@dataclass
class LinearProblem:
    """Queries of G heads for each of K key-value heads; values with a column of ones, for the denominator."""

    q: Float[Tensor, "B T K G R"]
    k: Float[Tensor, "B T K R"]
    v: Float[Tensor, "B T K E1"]
    log: Float[Tensor, "B T K"] | None
    docs: Int[Tensor, "B T"] | None

    @classmethod
    def of(cls, q: Features, k: Features, v: Tensor, layout: Layout, docs: Tensor | None) -> LinearProblem:
        """The problem, with zero features and values at padding."""
        wide = torch.promote_types(v.dtype, torch.float32)
        queries, (keys, log) = q.values, k
        if layout.padding != "none":
            hidden = ~layout.valid[:, :, None]
            queries, keys, v = (x.masked_fill(hidden[..., None], 0.0) for x in (queries, keys, v))
            log = None if log is None else log.masked_fill(hidden, LOW)
        grouped = queries.unflatten(2, (keys.shape[2], -1))  # a query's factor cancels
        return cls(grouped.to(wide), keys.to(wide), F.pad(v.to(wide), (0, 1), value=1.0), log, docs)


def _everything(p: LinearProblem) -> Float[Tensor, "B T H E1"]:
    """φ(Q) (φ(K)ᵀ V)."""
    k = p.k if p.log is None else p.k * (p.log - p.log.amax(1, keepdim=True)).exp()[..., None]
    sums = torch.einsum("btkr,btke->bkre", k, p.v)
    return torch.einsum("btkgr,bkre->btkge", p.q, sums).flatten(2, 3)


def _next(p: LinearProblem, state: LinearState) -> Float[Tensor, "B 1 H E1"]:
    """One token: add its key and value to the sum, and multiply the sum by its query."""
    k, v = p.k[:, 0], p.v[:, 0]
    sums = _start(state.sums, p)
    if p.log is not None:
        log = p.log[:, 0]
        before = torch.full_like(log, LOW) if state.top is None else state.top
        state.top = torch.maximum(before, log)
        sums = sums * (before - state.top).exp()[..., None, None]
        k = k * (log - state.top).exp()[..., None]
    state.sums = sums + k[..., None] * v[..., None, :]
    return (p.q[:, 0] @ state.sums).flatten(1, 2)[:, None]


def _start(sums: Tensor | None, p: LinearProblem) -> Float[Tensor, "B K R E1"]:
    b, _, heads, width = p.k.shape
    return p.k.new_zeros(b, heads, width, p.v.shape[-1]) if sums is None else sums


# -- by chunks -----------------------------------------------------------------------------------------------------------


@dataclass
class _Chunks:
    """N chunks of C tokens. Rows of q are tokens, and within them the G heads that share a key."""

    q: Float[Tensor, "B K N CG R"]
    k: Float[Tensor, "B K N C R"]
    v: Float[Tensor, "B K N C E1"]
    log: Float[Tensor, "B K N C"]
    docs: Int[Tensor, "B 1 N C"]

    @classmethod
    def of(cls, p: LinearProblem, size: int) -> _Chunks:
        log = p.k.new_zeros(1, p.k.shape[1], 1) if p.log is None else p.log
        docs = torch.zeros(1, p.k.shape[1], dtype=torch.long, device=p.k.device) if p.docs is None else p.docs
        q, k, v, docs = (_by_chunk(t, size) for t in (p.q, p.k, p.v, docs[..., None]))
        return cls(q.flatten(3, 4), k, v, _by_chunk(log, size, LOW), docs)

    def backwards(self) -> _Chunks:
        """The chunks in reverse order of tokens."""
        k, v = (t.flip(2, 3) for t in (self.k, self.v))
        return _Chunks(self.q, k, v, self.log.flip(2, 3), self.docs.flip(2, 3))


def _by_chunk(x: Tensor, size: int, fill: float = 0) -> Tensor:
    """(B, T, K, …) → (B, K, N, C, …), padded to complete chunks."""
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, -x.shape[1] % size), value=fill)
    return x.unflatten(1, (-1, size)).movedim(3, 1)


def _chunked(p: LinearProblem, causal: bool, state: LinearState | None, size: int) -> Float[Tensor, "B T H E1"]:
    """The sums for queries within their chunk, before it and, without causality, after it."""
    c, group, tokens = _Chunks.of(p, size), p.q.shape[3], p.k.shape[1]
    if p.log is None and p.docs is None:
        out = _plain(c, p, group, state)
    else:
        out = _weighted(c, p, group, causal, state)
    return out.unflatten(3, (size, group)).movedim(1, 3).flatten(1, 2)[:, :tokens].flatten(2, 3)


def _plain(c: _Chunks, p: LinearProblem, group: int, state: LinearState | None) -> Float[Tensor, "B K N CG E1"]:
    """Causal, for features without logs and rows of one document."""
    size = c.k.shape[3]
    lower = torch.ones(size, size, dtype=torch.bool, device=c.k.device).tril().repeat_interleave(group, 0)
    within = (c.q @ c.k.mT).masked_fill(~lower, 0.0) @ c.v
    first = _start(None if state is None else state.sums, p)[:, :, None]
    sums = torch.cat([first, c.k.mT @ c.v], 2).cumsum(2)
    if state is not None:
        state.sums = sums[:, :, -1]
    return within + c.q @ sums[:, :, :-1]


def _weighted(
    c: _Chunks, p: LinearProblem, group: int, causal: bool, state: LinearState | None
) -> Float[Tensor, "B K N CG E1"]:
    """With logs and documents. All sums of query t are scaled by e^(−M_t), with M_t the largest log that it sees: the
    largest exponential is then 1."""
    visible, n = c.docs[..., :, None] == c.docs[..., None, :], c.docs.shape[2]
    visible = visible.tril() if causal else visible
    log = c.log[..., None, :]
    most = torch.where(visible, log, LOW).amax(-1)
    carried = LinearState() if state is None else state
    sides = [_carry(c, _start(carried.sums, p), carried.top)]
    carried.sums, carried.top = sides[0].sums[:, :, -1], sides[0].tops[:, :, -1]
    sides += [] if causal else [_carry(c.backwards(), _start(None, p), None).reversed()]
    reaches = [torch.where(c.docs == side.docs[..., :n, None], side.tops[..., :n, None], LOW) for side in sides]
    for reach in reaches:
        most = torch.maximum(most, reach)
    weights = torch.where(visible, log - most[..., None], LOW).exp()
    out = (c.q @ c.k.mT * _for_each(weights, group)) @ c.v
    for side, reach in zip(sides, reaches, strict=True):
        weight = (reach - most).exp()
        out = out + _for_each(weight, group)[..., None] * (c.q @ side.sums[:, :, :n])
    return out


def _for_each(x: Tensor, group: int) -> Tensor:
    """Repeat rows of tokens for the heads of each token."""
    return x if group == 1 else x.repeat_interleave(group, 3)


@dataclass
class _Carried:
    """Before each chunk, and after the last: the sum over the current document, times e^(−top)."""

    sums: Float[Tensor, "B K N1 R E1"]
    tops: Float[Tensor, "B K N1"]
    docs: Int[Tensor, "B 1 N1"]

    def reversed(self) -> _Carried:
        """For chunks in reverse: in the original order, the sum after each chunk."""
        return _Carried(*(t[:, :, :-1].flip(2) for t in (self.sums, self.tops, self.docs)))


def _carry(c: _Chunks, first: Float[Tensor, "B K R E1"], first_top: Float[Tensor, "B K"] | None) -> _Carried:
    """A parallel scan by doubling: add to each sum the one 1, 2, 4 … chunks before it, within the same document."""
    last = c.docs[..., -1]
    docs = torch.cat([c.docs[..., 0, :1], last], 2)
    open_ = c.docs == last[..., None]
    tops = torch.where(open_, c.log, LOW).amax(-1)
    before = torch.full_like(tops[..., :1], LOW) if first_top is None else first_top[..., None]
    tops = _running_top(torch.cat([before, tops], 2), docs)
    weights = torch.where(open_, c.log - tops[..., 1:, None], LOW).exp()
    sums = torch.cat([first[:, :, None], (c.k * weights[..., None]).mT @ c.v], 2)
    return _Carried(_running_sum(sums, tops, docs), tops, docs)


def _running_top(tops: Tensor, docs: Tensor) -> Tensor:
    step = 1
    while step < tops.shape[2]:
        same = docs[..., :-step] == docs[..., step:]
        before = torch.where(same, tops[..., :-step], LOW)
        tops = torch.cat([tops[..., :step], torch.maximum(tops[..., step:], before)], 2)
        step *= 2
    return tops


def _running_sum(sums: Tensor, tops: Tensor, docs: Tensor) -> Tensor:
    step = 1
    while step < sums.shape[2]:
        same = docs[..., :-step] == docs[..., step:]
        weight = torch.where(same, tops[..., :-step] - tops[..., step:], LOW).exp()[..., None, None]
        sums = torch.cat([sums[:, :, :step], sums[:, :, step:] + weight * sums[:, :, :-step]], 2)
        step *= 2
    return sums
