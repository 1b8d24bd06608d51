"""Attention among tokens that share a random hash (Reformer, Kitaev et al. 2020), in O(T log T) time and O(T) memory.

Queries are keys, k_j = q_j / ‖q_j‖, and a token attends to itself only where there is no other for it:

    o_i = Σ_{j ∈ P_i} exp(q_i · k_j − z_i) v_j,   z_i = log Σ_{j ∈ P_i} exp(q_i · k_j).

With P_i all tokens that i may see this is `exact`. In `lsh_attention` P_i holds those that share i's bucket in some round:
in each round tokens are sorted by bucket and cut into chunks, and a token looks at those of its bucket in its own chunk
and in the one before. (The paper's code gives keys the length √D and scores 1/√D, which is the same.)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from ...core.graphs import untraced
from ...core.layout import Layout
from ...kernels.plan import Plan
from ...layers.dropout import dropout
from ...patterns.basic import causal as not_ahead
from ...patterns.basic import window
from ...patterns.documents import document_lengths
from ..attend import attend

_ITSELF = 1e5  # what a token's score with itself is lowered by: e^−10⁵ is 0 beside any other, and 1 alone
_LAST = torch.iinfo(torch.int64).max  # sorts behind every bucket


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
    """Shared-QK attention over all tokens: k are those of `unit`, `own` the values of the queries' own tokens."""
    others = ~window(1)
    out, lse = attend(
        q,
        k,
        v,
        pattern=not_ahead() & others if causal else others,
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
    """The same rotations for the same seed, on whatever device."""
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
    """Shared-QK attention among tokens that share a bucket, by chunks; what the R rounds find is united.

    A pair that N_ij rounds find counts once: each of them lowers its score by log N_ij (the paper's appendix A). Documents
    of at most `chunk` tokens are one bucket, which is exact, but for bidirectional ones that a chunk's border divides.
    Padding is sorted behind all tokens and other documents into other buckets: neither is ever seen, and a row gives
    the same whatever it is padded to. Padded queries give 0.
    """
    length = -(-qk.shape[1] // chunk) * chunk
    more = length + 1 - qk.shape[1]  # one token more than there are slots: padding for the first chunk to look back at
    hidden = ~layout.valid[..., None, None]
    queries, values = (F.pad(x.masked_fill(hidden, 0.0), (0, 0, 0, 0, 0, more)).transpose(1, 2) for x in (qk, v))
    at = F.pad(layout.positions[..., 0], (0, more), value=-1)
    sort = _sorted(hashed(queries, rotations), at, layout, chunk, rotations.shape[-1] * 2)
    out, lse = _within_chunks(queries, unit(queries), values, at, sort, causal, dropout)
    found = out.gather(3, sort.slot[..., None].expand(*sort.slot.shape, out.shape[-1]))
    share = lse.gather(3, sort.slot).softmax(2)[..., None]
    return (share * found).sum(2)[:, :, : qk.shape[1]].transpose(1, 2).to(v.dtype)


class _Sorted(NamedTuple):
    """Tokens in order of their buckets, in each of R rounds: L slots in chunks of C. Token L is padding."""

    bucket: Int[Tensor, "B H R L+1"]  # of each token; padding in the last, and those of each segment apart
    slot: Int[Tensor, "B H R L"]  # of each token
    own: Int[Tensor, "B H R L/C C"]  # the tokens in a chunk
    seen: Int[Tensor, "B H R L/C 2C"]  # those of the chunk before, and its own


def _sorted(
    bucket: Int[Tensor, "B H R L+1"], at: Int[Tensor, "B L+1"], layout: Layout, chunk: int, n_buckets: int
) -> _Sorted:
    length = bucket.shape[-1] - 1
    fits = (document_lengths(layout) <= chunk).expand(layout.shape)
    more = length + 1 - layout.shape[1]
    bucket = bucket.masked_fill(F.pad(fits, (0, more))[:, None, None], 0)
    if layout.segments is not None:
        bucket = bucket + F.pad(layout.segments, (0, more))[:, None, None] * n_buckets
    bucket = bucket.masked_fill((at < 0)[:, None, None], _LAST)
    order = bucket[..., :length].argsort(stable=True, dim=-1)
    slot = torch.zeros_like(order).scatter(-1, order, torch.arange(length, device=order.device).expand_as(order))
    own = order.unflatten(-1, (-1, chunk))
    before = torch.cat([torch.full_like(own[..., :1, :], length), own[..., :-1, :]], -2)
    return _Sorted(bucket, slot, own, torch.cat([before, own], -1))


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


def _added(
    at: Int[Tensor, "B L+1"], sort: _Sorted, causal: bool, dtype: torch.dtype
) -> Float[Tensor, "B H R L/C C 2C"]:
    """−log N_ij where a query may see a key, −∞ where not, and −10⁵ for itself, which it always may."""
    itself = sort.own[..., :, None] == sort.seen[..., None, :]
    allowed = _allowed(at, sort, causal)
    if sort.own.shape[2] == 1:
        added = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    else:
        added = _times(sort).clamp_(min=1).to(dtype).log_().neg_()
    return added.masked_fill_(~allowed, float("-inf")).masked_fill_(itself, -_ITSELF)


def _allowed(at: Int[Tensor, "B L+1"], sort: _Sorted, causal: bool) -> Bool[Tensor, "B H R L/C C 2C"]:
    """Real tokens of the query's bucket, and none that come after it where causal."""
    q_bucket, k_bucket = (sort.bucket.gather(-1, x.flatten(-2)).view_as(x) for x in (sort.own, sort.seen))
    everywhere = at[:, None].expand(*sort.bucket.shape[:2], -1)
    q_at, k_at = (_tokens(everywhere, x) for x in (sort.own, sort.seen))
    allowed = (q_bucket[..., :, None] == k_bucket[..., None, :]) & (k_at[..., None, :] >= 0)
    return allowed & (k_at[..., None, :] <= q_at[..., :, None]) if causal else allowed


def _times(sort: _Sorted) -> Int[Tensor, "B H R L/C C 2C"]:
    """In how many rounds a query meets a key: where both have one bucket, and the key's chunk is the same or before."""
    in_order = sort.bucket.gather(-1, sort.own.flatten(-2)).view_as(sort.own)
    steps = torch.zeros_like(in_order, dtype=torch.int32)
    steps[..., 0] = 1  # a place is 1 further in the next chunk, and 2 or more in the next bucket
    steps = steps.flatten(-2) + 2 * F.pad(in_order.flatten(-2).diff(dim=-1) != 0, (1, 0))
    place = F.pad(steps.cumsum(-1, dtype=torch.int32).gather(-1, sort.slot), (0, 1))
    times = torch.zeros(*sort.own.shape, sort.seen.shape[-1], dtype=torch.int32, device=place.device)
    for each in place.unbind(2):
        ahead = _tokens(each, sort.own)[..., :, None] - _tokens(each, sort.seen)[..., None, :]
        times += (ahead >> 1) == 0  # 0 or 1
    return times


def _tokens(x: Int[Tensor, "B H L"], index: Int[Tensor, "B H R n c"]) -> Int[Tensor, "B H R n c"]:
    return x.gather(2, index.flatten(2)).view_as(index)


def _rows(x: Float[Tensor, "B H L D"], index: Int[Tensor, "B H R n c"]) -> Float[Tensor, "B H R n c D"]:
    flat = index.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).view(*index.shape, x.shape[-1])


def errors(
    rounds: Sequence[int], sharpness: float, length: int = 1024, buckets: int = 32, seed: int = 0
) -> dict[int, float]:
    """‖o − exact‖ / ‖exact‖ by the number of rounds: causal, 4 heads of width 32, chunks of 64.

    Tokens lie around as many directions as there are buckets; `sharpness` is ‖q‖, the greatest that a score can be.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    around = draw(buckets, 4, 32)[torch.randint(buckets, (length,), generator=generator)]
    qk = sharpness * unit(around + 0.3 * draw(length, 4, 32))[None]
    v, layout = draw(1, length, 4, 32), Layout.full(length)
    rotations = draw(4, 32, max(rounds), buckets // 2)
    wanted = exact(qk, unit(qk), v, v, layout=layout, kv_layout=layout)
    found = {n: lsh_attention(qk, v, rotations[:, :, :n].contiguous(), layout=layout, chunk=64) for n in rounds}
    return {n: float((out - wanted).norm() / wanted.norm()) for n, out in found.items()}
