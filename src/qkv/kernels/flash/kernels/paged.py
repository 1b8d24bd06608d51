# mypy: ignore-errors
"""Attention of a few queries over keys in pages: all queries that share a key-value head make the rows of one tile."""

from __future__ import annotations

from .language import jit, tl


@jit
def paged(
    q,
    pages_k,
    pages_v,
    table,
    lengths,
    parts,  # (splits, B, T, H, E) fp32
    norms,  # (splits, B, H, T) fp32
    q_strides,
    k_strides,
    v_strides,
    batch,
    t,
    n_pages,
    each,  # tiles of keys for a split
    scale,
    softcap,
    window,
    M: tl.constexpr,
    N: tl.constexpr,
    PAGE: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    DP: tl.constexpr,
    EP: tl.constexpr,
    CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    shared = tl.program_id(1) % (H // G)
    b = (tl.program_id(1) // (H // G)).to(tl.int64)
    split = tl.program_id(2)
    rows = tl.program_id(0) * M + tl.arange(0, M)
    token = rows // G
    h = shared * G + rows % G
    there = token < t
    length = tl.load(lengths + b)
    at = length - t + token  # positions of the queries
    d = tl.arange(0, DP)
    e = tl.arange(0, EP)
    q_at = q + b * q_strides[0] + token.to(tl.int64) * q_strides[1] + h.to(tl.int64) * q_strides[2]
    q_tile = tl.load(q_at[:, None] + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, EP), tl.float32)
    first = split * each
    last = tl.minimum(first + each, (length + N - 1) // N)
    oldest = length * 0
    if WINDOW:
        oldest = tl.maximum(length - t - window + 1, 0)  # the first key that some query of the row sees
        first = tl.maximum(first, oldest // N)
    for n in range(first, last):
        key = n * N + tl.arange(0, N)
        live = (key >= oldest) & (key < length)
        page = tl.load(table + b * n_pages + key // PAGE, mask=live, other=0).to(tl.int64)
        slot = (key % PAGE).to(tl.int64)
        k_at = pages_k + page * k_strides[0] + slot * k_strides[1] + shared.to(tl.int64) * k_strides[2]
        v_at = pages_v + page * v_strides[0] + slot * v_strides[1] + shared.to(tl.int64) * v_strides[2]
        k_tile = tl.load(k_at[:, None] + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)
        v_tile = tl.load(v_at[:, None] + e[None, :], mask=live[:, None] & (e < E)[None, :], other=0.0)
        x = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * scale
        if CAP:
            x = softcap * (1.0 - 2.0 / (tl.exp(x * (2.0 / softcap)) + 1.0))
        back = at[:, None] - key[None, :]
        seen = live[None, :] & (back >= 0)
        if WINDOW:
            seen = seen & (back < window)
        x = tl.where(seen, x * 1.4426950408889634, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        w = tl.exp2(x - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(w, 1)
        acc = tl.dot(w.to(v_tile.dtype), v_tile, acc * fade[:, None], input_precision=PRECISION)
        top = higher
    dead = total == 0.0
    acc = acc / tl.where(dead, 1.0, total)[:, None]
    row = split.to(tl.int64) * batch + b
    out_at = parts + ((row * t + token) * H + h) * E
    tl.store(out_at[:, None] + e[None, :], acc, mask=there[:, None] & (e < E)[None, :])
    norm = tl.where(dead, float("-inf"), (top + tl.log2(total)) * 0.6931471805599453)
    tl.store(norms + (row * H + h) * t + token, norm, mask=there)
