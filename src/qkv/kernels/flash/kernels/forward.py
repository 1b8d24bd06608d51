# mypy: ignore-errors
"""FlashAttention-2's forward pass (Dao 2023, algorithm 1): one program for each tile of queries of one head, with an online
soft-max over the key tiles that the map lists; first the whole ones, which need no mask, then the others."""

from __future__ import annotations

from .language import jit, tl, tuned
from .tile import finite, kept, load_tile, scores, store_tile


@tuned((4, 2), (4, 3), (8, 2), (8, 3))
@jit
def forward(
    q,
    k,
    v,
    out,  # (B, T, H, E), contiguous
    lse,  # (B, H, T)
    tiles,
    bias,
    seed,
    q_strides,
    k_strides,
    v_strides,
    bias_strides,
    t,
    s,
    n_q,
    n_k,
    reach,
    size,
    scale,
    softcap,
    dropout,
    M: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    DP: tl.constexpr,
    EP: tl.constexpr,
    BIAS: tl.constexpr,
    CAP: tl.constexpr,
    DROPOUT: tl.constexpr,
    BOXES: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PER_HEAD: tl.constexpr,
    MAPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    i = n_q - 1 - program % n_q  # causal patterns have the most to do in the last rows: they start first
    h = program // n_q % H
    b = (program // n_q // H).to(tl.int64)
    row = b * MAPS
    k_head = k + b * k_strides[0] + (h // G).to(tl.int64) * k_strides[2]
    v_head = v + b * v_strides[0] + (h // G).to(tl.int64) * v_strides[2]
    q_tile = load_tile(q + b * q_strides[0] + h.to(tl.int64) * q_strides[2], i * M, q_strides[1], t, M, D, DP, True)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, EP), tl.float32)
    whole = tl.load(tiles.column_counts + (row * n_q + i) * 2)
    listed = tl.load(tiles.column_counts + (row * n_q + i) * 2 + 1)
    if BIAS == 3:
        whole = whole * 0  # −∞ in a bias hides pairs in any tile
    for MASKED in tl.static_range(2):
        for n in range(whole * MASKED, whole + (listed - whole) * MASKED):
            j = tl.load(tiles.columns + (row * n_q + i) * n_k + n)
            k_tile = load_tile(k_head, j * N, k_strides[1], s, N, D, DP, MASKED)
            v_tile = load_tile(v_head, j * N, v_strides[1], s, N, E, EP, MASKED)
            x, _ = scores(
                *(q_tile, k_tile, tiles, bias, bias_strides, b, row, h, i, j, t, s, n_q, n_k, reach, scale, softcap),
                *(M, N, H, BIAS, CAP, BOXES, SEGMENTS, PER_HEAD, PRECISION, MASKED),
            )
            higher = tl.maximum(top, tl.max(x, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen nothing yet
            w = tl.exp2(x - base[:, None])
            fade = tl.exp2(top - base)
            total = total * fade + tl.sum(w, 1)
            acc = acc * fade[:, None]
            if MASKED:  # NaN and ±∞ in a value reach the queries that see it, as NaN, and no others
                bad = tl.sum((v_tile - v_tile).to(tl.float32), 1)
                acc += tl.sum(tl.where(x == float("-inf"), 0.0, bad[None, :]), 1)[:, None]
                v_tile = finite(v_tile)
            if DROPOUT:
                w = tl.where(kept(seed, b, h, i, j, dropout, M, N), w * (1.0 / (1.0 - dropout)), 0.0)
            acc = tl.dot(w.to(v_tile.dtype), v_tile, acc, input_precision=PRECISION)
            top = higher
    dead = total == 0.0
    acc = acc / tl.where(dead, 1.0, total)[:, None]
    store_tile(out + (b * t * H + h) * E, acc, i * M, H * E, t, M, E, EP)
    rows = i * M + tl.arange(0, M)
    norm = tl.where(dead, float("-inf"), (top + tl.log2(total)) * 0.6931471805599453)
    tl.store(lse + (b * H + h) * t + rows, norm, mask=rows < t)
