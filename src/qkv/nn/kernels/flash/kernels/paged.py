# mypy: ignore-errors
"""Paged attention of a few queries over keys in pages: all queries that share a key-value head are the rows of one tile."""

from __future__ import annotations

from .language import jit, tl
from .tile import capped, softmax_end, softmax_step


@jit
def paged(
    q,
    pages_k,
    pages_v,
    table,
    lengths,
    parts,  # (splits, B, T, H, E) fp32
    norms,  # (splits, B, H, T) fp32
    strides,  # of q, keys and values
    batch,
    t,
    n_pages,
    each,  # tiles of keys for a split
    scale,
    softcap,
    window,
    PAGE: tl.constexpr,
    WINDOW: tl.constexpr,
    C: tl.constexpr,
):
    q_strides, k_strides, v_strides = strides
    shared = tl.program_id(1) % (C.H // C.G)
    b = (tl.program_id(1) // (C.H // C.G)).to(tl.int64)
    split = tl.program_id(2)
    rows = tl.program_id(0) * C.M + tl.arange(0, C.M)
    token = rows // C.G
    h = shared * C.G + rows % C.G
    inside = token < t
    length = tl.load(lengths + b)
    at = length - t + token  # positions of the queries
    d = tl.arange(0, C.DP)
    e = tl.arange(0, C.EP)
    q_at = q + b * q_strides[0] + token.to(tl.int64) * q_strides[1] + h.to(tl.int64) * q_strides[2]
    q_tile = tl.load(q_at[:, None] + d[None, :], mask=inside[:, None] & (d < C.D)[None, :], other=0.0)
    top = tl.full((C.M,), float("-inf"), tl.float32)
    total = tl.zeros((C.M,), tl.float32)
    acc = tl.zeros((C.M, C.EP), tl.float32)
    first = split * each
    last = tl.minimum(first + each, (length + C.N - 1) // C.N)
    oldest = length * 0
    if WINDOW:
        oldest = tl.maximum(length - t - window + 1, 0)  # the first key that some query of the row sees
        first = tl.maximum(first, oldest // C.N)
    for n in range(first, last):
        key = n * C.N + tl.arange(0, C.N)
        live = (key >= oldest) & (key < length)
        page = tl.load(table + b * n_pages + key // PAGE, mask=live, other=0).to(tl.int64)
        slot = (key % PAGE).to(tl.int64)
        k_at = pages_k + page * k_strides[0] + slot * k_strides[1] + shared.to(tl.int64) * k_strides[2]
        v_at = pages_v + page * v_strides[0] + slot * v_strides[1] + shared.to(tl.int64) * v_strides[2]
        k_tile = tl.load(k_at[:, None] + d[None, :], mask=live[:, None] & (d < C.D)[None, :], other=0.0)
        v_tile = tl.load(v_at[:, None] + e[None, :], mask=live[:, None] & (e < C.E)[None, :], other=0.0)
        x = tl.dot(q_tile, tl.trans(k_tile), input_precision=C.PRECISION) * scale
        if C.CAP:
            x = softcap * capped(x, softcap)
        back = at[:, None] - key[None, :]
        seen = live[None, :] & (back >= 0)
        if WINDOW:
            seen = seen & (back < window)
        x = tl.where(seen, x * 1.4426950408889634, float("-inf"))
        w, fade, top, total = softmax_step(x, top, total)
        acc = tl.dot(w.to(v_tile.dtype), v_tile, acc * fade[:, None], input_precision=C.PRECISION)
    acc, norm = softmax_end(acc, top, total)
    row = split.to(tl.int64) * batch + b
    out_at = parts + ((row * t + token) * C.H + h) * C.E
    tl.store(out_at[:, None] + e[None, :], acc, mask=inside[:, None] & (e < C.E)[None, :])
    tl.store(norms + (row * C.H + h) * t + token, norm, mask=inside)
