"""LSH attention of the Reformer (Kitaev et al. 2020): tokens attend to tokens with the same random hash, in O(T log T).

Keys are normalized queries, k_j = q_j / ‖q_j‖, and a token attends to itself only if it sees no other:

    o_i = Σ_{j ∈ P_i} exp(q_i · k_j − z_i) v_j,   z_i = log Σ_{j ∈ P_i} exp(q_i · k_j).

In `exact`, P_i has all tokens that i may see. In `lsh_attention` it has the tokens that share i's bucket in some round. In
each round, tokens are sorted by bucket and cut into chunks. A token sees the tokens of its bucket in its own chunk and in
the one before. (The paper's code scales keys by √D and scores by 1/√D, which is equivalent.)
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.graphs import untraced
from ...core.layout import Layout
from ...core.spec import Cost
from ..kernels.hidden_nan import confined, may_have_nan
from ..kernels.plan import Plan
from ..kv_cache.full import KeyValueState, LayerState, SlotTables
from ..layers.dropout import dropout
from ..layers.linear import Linear
from ..patterns.basic import Causal, Full, Pattern, window
from ..patterns.documents import document_lengths
from .attend import attend
from .linear import check_full_or_causal, is_causal, refuse_bias
from .mixer import Mixer, Pass, refuse_crossing
from .multi_head import clear_padding, head_width


class LSHAttention(Mixer, kind="lsh-attention"):
    """Attention among tokens that a random hash puts into the same one of `buckets`, in any of several `rounds`, by chunks
    (equations at the top of this module). Time grows as T log T, memory as T.

    More rounds approximate shared-QK attention over all tokens better, at a proportional cost. The paper has about
    2 · T / `chunk` buckets. Rows of at most `chunk` tokens are exact, as are all rows with `chunk` null. Training draws new
    rotations in every pass, from PyTorch's generator; in evaluation they depend on `seed` and the layer's name. **Decoding
    attends to all cached tokens exactly**, so beyond a chunk it equals evaluation with `chunk` null, not evaluation by
    buckets.

    The pattern is full or causal; packed documents are always isolated. Rotary positions are applied before hashing.
    """

    n_heads: int = Field(gt=0)
    d_head: int | None = Field(default=None, gt=0)
    d_value: int | None = Field(default=None, gt=0)
    bias: bool = False
    pattern: Pattern = Full()
    buckets: int = Field(default=64, gt=0)
    rounds: int = Field(default=4, gt=0)
    chunk: int | None = Field(default=64, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    seed: int = 0

    ties_queries_and_keys = True

    @field_validator("buckets")
    @classmethod
    def _pairs_of_directions(cls, buckets: int) -> int:
        if buckets % 2:
            raise ValueError(f"buckets must be even, not {buckets}, because a direction and its opposite are two")
        return buckets

    @field_validator("pattern")
    @classmethod
    def _full_or_causal(cls, pattern: Pattern) -> Pattern:
        check_full_or_causal("lsh-attention", pattern)
        return pattern

    @property
    def causal(self) -> bool:
        return is_causal(self.pattern)

    def widths(self, d_model: int) -> tuple[int, int, int]:
        """(H, D, E)."""
        d_head = self.d_head or head_width(d_model, self.n_heads)
        return self.n_heads, d_head, self.d_value or d_head

    def heads(self, d_model: int) -> tuple[int, int]:
        return self.widths(d_model)[:2]

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return KeyValueState(slot_tables[None], capacity)

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        heads, d, e = self.widths(d_model)
        return {"keys and values": tokens * heads * (d + e) * itemsize}

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadLSHAttention(self, d_model, name)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """For rows longer than a chunk, each chunk is compared with two chunks, in each round."""
        h, d, e = self.widths(d_model)
        projections = d_model * h * (d + e) + h * e * d_model
        biases = (h * (d + e) + d_model) * self.bias
        if self.chunk is None or tokens <= self.chunk:
            met, hashing = pairs, 0
        else:
            met = self.rounds * -(-tokens // self.chunk) * self.chunk * 2 * self.chunk
            hashing = tokens * h * d * self.rounds * self.buckets
        return Cost(projections + biases, 2 * projections * tokens + 2 * met * h * (d + e) + hashing)


class MultiHeadLSHAttention(nn.Module):
    """The module of `LSHAttention`. Parameters: qk, v (H·D, H·E rows) and out."""

    def __init__(self, spec: LSHAttention, d_model: int, name: str) -> None:
        super().__init__()
        self.n_heads, self.d_head, self.d_value = h, d, e = spec.widths(d_model)
        self.causal, self.chunk, self.dropout, self.name = spec.causal, spec.chunk, spec.dropout, name
        self.drawing = (h, d, spec.rounds, spec.buckets)
        self.seed = f"{spec.seed} {name}"
        self.qk = Linear(d_model, h * d, spec.bias)
        self.v = Linear(d_model, h * e, spec.bias)
        self.out = Linear(h * e, d_model, spec.bias, into_residual=True)

    def forward(
        self, x: Float[Tensor, "B T M"], run: Pass, state: KeyValueState | None = None
    ) -> Float[Tensor, "B T M"]:
        refuse_bias("lsh-attention", run)
        qk, v = self.qk(x).unflatten(-1, (-1, self.d_head)), self.v(x).unflatten(-1, (-1, self.d_value))
        qk = run.rotate_keys(qk)
        if state is None and self.chunk is not None and x.shape[1] > self.chunk:
            mixed = self._by_chunks(qk, v, run, self.chunk)
        else:
            mixed = self._exact(qk, v, run, state)
        return self.out(mixed.flatten(-2))

    def _by_chunks(self, qk: Tensor, v: Tensor, run: Pass, chunk: int) -> Float[Tensor, "B T H E"]:
        if self.training:
            rotations = draw_rotations(*self.drawing, like=qk)
        else:
            rotations = fixed_rotations(*self.drawing, like=qk, seed=self.seed)
        p = self.dropout if self.training else 0.0
        return lsh_attention(qk, v, rotations, layout=run.layout, chunk=chunk, causal=self.causal, dropout=p)

    def _exact(self, qk: Tensor, v: Tensor, run: Pass, state: KeyValueState | None) -> Float[Tensor, "B T H E"]:
        qk, v = clear_padding(run.layout, qk, v)
        own, k, kv_layout = v, unit(qk), run.layout
        if state is not None:
            k, v = state.append(k, v)
            kv_layout = state.layout
        return exact(
            qk,
            k,
            v,
            own,
            layout=run.layout,
            kv_layout=kv_layout,
            causal=self.causal,
            dropout=self.dropout if self.training else 0.0,
            plan=run.plan,
            clean=True,
            name=self.name,
        )


# -- the mathematics ---------------------------------------------------------------------------------------------------


_ITSELF = 1e5  # subtracted from a token's score with itself: its weight is 0 beside any other, and 1 alone
_LAST = torch.iinfo(torch.int64).max  # sorts after every bucket


def unit(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """x / ‖x‖, in fp32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * (wide.square().sum(-1, keepdim=True) + 1e-12).rsqrt()).to(x.dtype)


def exact(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S H D"],
    v: Float[Tensor, "B S H E"],
    own: Float[Tensor, "B T H E"],
    *,
    layout: Layout,
    kv_layout: Layout,
    causal: bool = True,
    dropout: float = 0.0,
    plan: Plan | None = None,
    clean: bool = False,
    name: str = "",
) -> Float[Tensor, "B T H E"]:
    """Shared-QK attention over all tokens, with k from `unit`; `own` are the values of the queries' own tokens."""
    others = ~window(1)
    out, lse = attend(
        q,
        k,
        v,
        pattern=Causal() & others if causal else others,
        layout=layout,
        kv_layout=kv_layout,
        scale=1.0,
        dropout=dropout,
        return_lse=True,
        plan=plan,
        clean=clean,
        name=name,
    )
    alone = (lse == float("-inf")).transpose(1, 2)[..., None] & layout.valid[..., None, None]
    return torch.where(alone, own, out)


def draw_rotations(n_heads: int, d_head: int, rounds: int, buckets: int, like: Tensor) -> Float[Tensor, "H D R N"]:
    """Random rotations from PyTorch's generator: N = buckets / 2 directions for each head and round."""
    return torch.randn(n_heads, d_head, rounds, buckets // 2, device=like.device, dtype=_wide(like))


@untraced  # a graph has no generators
def fixed_rotations(
    n_heads: int, d_head: int, rounds: int, buckets: int, like: Tensor, seed: str
) -> Float[Tensor, "H D R N"]:
    """The same rotations for the same seed, on any device."""
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    drawn = torch.randn(n_heads, d_head, rounds, buckets // 2, generator=generator, dtype=torch.float32)
    return drawn.to(like.device, _wide(like))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def hashed(qk: Float[Tensor, "B H T D"], rotations: Float[Tensor, "H D R N"]) -> Int[Tensor, "B H R T"]:
    """h(x) = argmax [x R; −x R]: near vectors tend to fall into one of the 2N buckets (Andoni et al. 2015)."""
    turned = torch.einsum("bhtd,hdrn->bhrtn", qk.detach().to(rotations.dtype), rotations)
    return torch.cat([turned, -turned], -1).argmax(-1)


def lsh_attention(
    qk: Float[Tensor, "B T H D"],
    v: Float[Tensor, "B T H E"],
    rotations: Float[Tensor, "H D R N"],
    *,
    layout: Layout,
    chunk: int,
    causal: bool = True,
    dropout: float = 0.0,
) -> Float[Tensor, "B T H E"]:
    """Shared-QK attention among tokens of one bucket, by chunks, over the union of R rounds.

    A pair that occurs in N_ij rounds counts once: each of them lowers its score by log N_ij (the paper's appendix A). A
    document of at most `chunk` tokens is one bucket, which is exact: if it crosses the border of a chunk, its tokens see the
    next chunk too. Padding is sorted after all tokens and each document has separate buckets, so neither padding nor other
    documents are attended to, and the width of padding changes nothing. Padded queries give 0. On CPUs, NaN and infinities
    reach only the queries that see them.
    """
    length = -(-qk.shape[1] // chunk) * chunk
    more = length + 1 - qk.shape[1]  # one more token than slots: padding before the first chunk
    hidden = ~layout.valid[..., None, None]
    queries, values = (F.pad(x.masked_fill(hidden, 0.0), (0, 0, 0, 0, 0, more)).transpose(1, 2) for x in (qk, v))
    at = F.pad(layout.positions[..., 0], (0, more), value=-1)
    sort = _sorted(hashed(queries, rotations), at, layout, chunk, rotations.shape[-1] * 2, causal)
    out = _over_rounds(queries, values, at, sort, causal, dropout)
    if may_have_nan(out):
        bad, bad_v = ~queries.isfinite().all(-1, keepdim=True), ~values.isfinite()
        clean = (queries.masked_fill(bad, 0.0), values.masked_fill(bad_v, 0.0))
        seen = _over_rounds(torch.zeros_like(queries), (bad | bad_v).to(queries.dtype), at, sort, causal, 0.0) > 0
        out = confined(out, _over_rounds(*clean, at, sort, causal, dropout), seen | bad[:, :, :length])
    return out[:, :, : qk.shape[1]].transpose(1, 2).to(v.dtype)


class _Sorted(NamedTuple):
    """Tokens sorted by bucket, in each of R rounds: L slots in chunks of C. Token L is padding."""

    bucket: Int[Tensor, "B H R L+1"]  # of each token; padding in the last, separate ones for each segment
    slot: Int[Tensor, "B H R L"]  # of each token
    own: Int[Tensor, "B H R L/C C"]  # the tokens in a chunk
    seen: Int[Tensor, "B H R L/C S"]  # the tokens of the chunk before, of the chunk, and with `short` of the next one
    short: Bool[Tensor, "B L+1"] | None  # tokens of documents that may cross a border; None if those before are enough


def _sorted(
    bucket: Int[Tensor, "B H R L+1"], at: Int[Tensor, "B L+1"], layout: Layout, chunk: int, n_buckets: int, causal: bool
) -> _Sorted:
    length = bucket.shape[-1] - 1
    more = length + 1 - layout.shape[1]
    fits = F.pad((document_lengths(layout) <= chunk).expand(layout.shape), (0, more))
    bucket = bucket.masked_fill(fits[:, None, None], 0)
    if layout.segments is not None:
        bucket = bucket + F.pad(layout.segments, (0, more))[:, None, None] * n_buckets
    bucket = bucket.masked_fill((at < 0)[:, None, None], _LAST)
    order = bucket[..., :length].argsort(stable=True, dim=-1)
    slot = torch.zeros_like(order).scatter(-1, order, torch.arange(length, device=order.device).expand_as(order))
    own = order.unflatten(-1, (-1, chunk))
    beyond = torch.full_like(own[..., :1, :], length)
    seen = [torch.cat([beyond, own[..., :-1, :]], -2), own]
    if causal or layout.segments is None:  # a document that is alone in its row begins with the first chunk
        return _Sorted(bucket, slot, own, torch.cat(seen, -1), None)
    return _Sorted(bucket, slot, own, torch.cat([*seen, torch.cat([own[..., 1:, :], beyond], -2)], -1), fits)


def _over_rounds(
    queries: Float[Tensor, "B H L+1 D"],
    values: Float[Tensor, "B H L+1 E"],
    at: Int[Tensor, "B L+1"],
    sort: _Sorted,
    causal: bool,
    dropped: float,
) -> Float[Tensor, "B H L E"]:
    """Average the attention of all rounds, weighted by the soft-max over their log-sum-exps."""
    out, lse = _within_chunks(queries, unit(queries), values, at, sort, causal, dropped)
    mixed = out.gather(3, sort.slot[..., None].expand(*sort.slot.shape, out.shape[-1]))
    share = lse.gather(3, sort.slot).softmax(2)[..., None]
    return (share * mixed).sum(2)


def _within_chunks(
    queries: Float[Tensor, "B H L+1 D"],
    keys: Float[Tensor, "B H L+1 D"],
    values: Float[Tensor, "B H L+1 E"],
    at: Int[Tensor, "B L+1"],
    sort: _Sorted,
    causal: bool,
    dropped: float,
) -> tuple[Float[Tensor, "B H R L E"], Float[Tensor, "B H R L"]]:
    """Each round's attention, slot by slot, and its log-sum-exp."""
    q, k, v = _rows(queries, sort.own), _rows(keys, sort.seen), _rows(values, sort.seen)
    scores = (q @ k.mT).to(_wide(q))
    scores = scores + _added(at, sort, causal, scores.dtype)
    lse = scores.logsumexp(-1)
    weights = dropout((scores - lse[..., None]).exp(), dropped)
    return (weights.to(v.dtype) @ v).flatten(3, 4), lse.flatten(3, 4)


def _added(at: Int[Tensor, "B L+1"], sort: _Sorted, causal: bool, dtype: torch.dtype) -> Float[Tensor, "B H R L/C C S"]:
    """−log N_ij for allowed pairs, −∞ for others, and −10⁵ for a token with itself, which is always allowed."""
    itself = sort.own[..., :, None] == sort.seen[..., None, :]
    allowed = _allowed(at, sort, causal)
    if sort.own.shape[2] == 1:
        added = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    else:
        added = _times(sort).clamp_(min=1).to(dtype).log_().neg_()
    return added.masked_fill_(~allowed, float("-inf")).masked_fill_(itself, -_ITSELF)


def _allowed(at: Int[Tensor, "B L+1"], sort: _Sorted, causal: bool) -> Bool[Tensor, "B H R L/C C S"]:
    """The real tokens of the query's bucket; if causal, not later ones; and in the next chunk only tokens of a short
    document."""
    q_bucket, k_bucket = (sort.bucket.gather(-1, x.flatten(-2)).view_as(x) for x in (sort.own, sort.seen))
    everywhere = at[:, None].expand(*sort.bucket.shape[:2], -1)
    q_at, k_at = (_tokens(everywhere, x) for x in (sort.own, sort.seen))
    allowed = (q_bucket[..., :, None] == k_bucket[..., None, :]) & (k_at[..., None, :] >= 0)
    if sort.short is not None:
        chunk = sort.own.shape[-1]
        allowed[..., 2 * chunk :] &= _short(sort, sort.seen[..., 2 * chunk :])[..., None, :]
    return allowed & (k_at[..., None, :] <= q_at[..., :, None]) if causal else allowed


def _short(sort: _Sorted, index: Int[Tensor, "B H R n c"]) -> Bool[Tensor, "B H R n c"]:
    """Which of the tokens are of short documents."""
    assert sort.short is not None
    return _tokens(sort.short[:, None].expand(*sort.bucket.shape[:2], -1), index)


def _times(sort: _Sorted) -> Int[Tensor, "B H R L/C C S"]:
    """The number of rounds in which a query sees a key: in one bucket, with the key in the same chunk or the one before; of
    short documents all of them, which sort these alike."""
    in_order = sort.bucket.gather(-1, sort.own.flatten(-2)).view_as(sort.own)
    steps = torch.zeros_like(in_order, dtype=torch.int32)
    steps[..., 0] = 1  # places advance by 1 at a new chunk, and by 2 or more at a new bucket
    steps = steps.flatten(-2) + 2 * F.pad(in_order.flatten(-2).diff(dim=-1) != 0, (1, 0))
    place = F.pad(steps.cumsum(-1, dtype=torch.int32).gather(-1, sort.slot), (0, 1))
    times = torch.zeros(*sort.own.shape, sort.seen.shape[-1], dtype=torch.int32, device=place.device)
    for each in place.unbind(2):
        ahead = _tokens(each, sort.own)[..., :, None] - _tokens(each, sort.seen)[..., None, :]
        times += (ahead >> 1) == 0  # 0 or 1
    return times if sort.short is None else times.masked_fill_(_short(sort, sort.own)[..., None], place.shape[2])


def _tokens(x: Int[Tensor, "B H L"], index: Int[Tensor, "B H R n c"]) -> Int[Tensor, "B H R n c"]:
    return x.gather(2, index.flatten(2)).view_as(index)


def _rows(x: Float[Tensor, "B H L D"], index: Int[Tensor, "B H R n c"]) -> Float[Tensor, "B H R n c D"]:
    flat = index.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).view(*index.shape, x.shape[-1])
