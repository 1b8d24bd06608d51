# mypy: ignore-errors
"""FlashAttention-2's forward pass (Dao 2023, algorithm 1): one program for each tile of queries of one head. It
computes an online soft-max over the key tiles that the block map lists: first the full ones, which need no mask, then
the others."""

from __future__ import annotations

from .language import jit, tl, tuned
from .tile import finite, head_of, kept, load_tile, program, scores, softmax_end, softmax_step, store_tile, tile_counts


@tuned((4, 2), (4, 3), (8, 2), (8, 3))
@jit
def forward(p, out, lse, size, C: tl.constexpr):
    """out: (B, T, H, E), contiguous. lse: (B, H, T)."""
    i, h, b = program(p.n_q, C.H)
    i = p.n_q - 1 - i  # causal patterns have the most work in the last rows: they start first
    at = b * C.MAPS * p.n_q + i
    k_head = head_of(p.k, p.k_strides, b, h // C.G)
    v_head = head_of(p.v, p.v_strides, b, h // C.G)
    q_tile = load_tile(head_of(p.q, p.q_strides, b, h), i * C.M, p.q_strides[1], p.t, C.M, C.D, C.DP, True)
    top = tl.full((C.M,), float("-inf"), tl.float32)
    total = tl.zeros((C.M,), tl.float32)
    acc = tl.zeros((C.M, C.EP), tl.float32)
    full, listed = tile_counts(p.tiles.column_counts, at, C)
    for MASKED in tl.static_range(2):
        for n in range(full * MASKED, full + (listed - full) * MASKED):
            j = tl.load(p.tiles.columns + at * p.n_k + n)
            k_tile = load_tile(k_head, j * C.N, p.k_strides[1], p.s, C.N, C.D, C.DP, MASKED)
            v_tile = load_tile(v_head, j * C.N, p.v_strides[1], p.s, C.N, C.E, C.EP, MASKED)
            x, _ = scores(p, q_tile, k_tile, b, h, i, j, C, MASKED)
            w, fade, top, total = softmax_step(x, top, total)
            acc = acc * fade[:, None]
            if MASKED:  # NaN and ±∞ in a value reach the queries that see it, as NaN, and no others
                bad = tl.sum((v_tile - v_tile).to(tl.float32), 1)
                acc += tl.sum(tl.where(x == float("-inf"), 0.0, bad[None, :]), 1)[:, None]
                v_tile = finite(v_tile)
            if C.DROPOUT:
                w = tl.where(kept(p, b, h, i, j, C), w * (1.0 / (1.0 - p.dropout)), 0.0)
            acc = tl.dot(w.to(v_tile.dtype), v_tile, acc, input_precision=C.PRECISION)
    acc, norm = softmax_end(acc, top, total)
    store_tile(out + (b * p.t * C.H + h) * C.E, acc, i * C.M, C.H * C.E, p.t, C.M, C.E, C.EP)
    rows = i * C.M + tl.arange(0, C.M)
    tl.store(lse + (b * C.H + h) * p.t + rows, norm, mask=rows < p.t)
