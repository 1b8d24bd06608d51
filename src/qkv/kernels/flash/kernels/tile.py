# mypy: ignore-errors
"""What the kernels share about one tile of M queries × N keys: loads, which pairs may meet, scores, dropout, gradients.

Scores are in units of log 2, s = log₂e · (cap(scale · QKᵀ) + bias), since the device's exponential is 2ˣ. Pairs that may
not meet have s = −∞. Offsets that grow with the batch or the length are made in 64 bits.
"""

from __future__ import annotations

from .language import jit, tl


@jit
def load_tile(
    ptr, first, stride, limit, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr
):
    """Rows first … first + ROWS − 1 of a (limit, WIDTH) matrix as (ROWS, PADDED), 0 beyond its edges.

    Without EDGE all rows are known to be there.
    """
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    at = ptr + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if EDGE or WIDTH != PADDED:
        return tl.load(at, mask=(rows < limit)[:, None] & (columns < WIDTH)[None, :], other=0.0)
    return tl.load(at)


@jit
def store_tile(ptr, value, first, stride, limit, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The inverse of `load_tile`, rounded to what the matrix holds."""
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    at = ptr + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    inside = (rows < limit)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at, value.to(ptr.dtype.element_ty), mask=inside)


@jit
def finite(x):
    """x with 0 for NaN and ±∞: a product with a weight of 0 must be 0."""
    return tl.where(x - x == 0.0, x, 0.0).to(x.dtype)


@jit
def visible(
    tiles,
    row,  # of the map: the batch row, or 0 where all share one
    h,
    i,
    j,
    n_q,
    n_k,
    M: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    BOXES: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PER_HEAD: tl.constexpr,
):
    """(M, N) boolean: which pairs of tile (i, j) pattern, segments and padding let meet."""
    rows = (row * n_q + i) * M + tl.arange(0, M)
    cols = (row * n_k + j) * N + tl.arange(0, N)
    q_at = tl.load(tiles.q_place + rows)
    k_at = tl.load(tiles.k_place + cols)
    seen = (q_at >= 0)[:, None] & (k_at >= 0)[None, :]
    if SEGMENTS:
        seen = seen & (tl.load(tiles.q_segment + rows)[:, None] == tl.load(tiles.k_segment + cols)[None, :])
    if BOXES < 0:  # the tile's mask: one word of N bits for each query
        number = tl.load(tiles.kind + (row * n_q + i) * n_k + j).to(tl.int64)  # from 1; 0 is a whole tile
        of_head = (number - 1) * H + h if PER_HEAD else number - 1
        lines = tl.arange(0, M)
        words = tl.load(tiles.rule + of_head * M + lines, mask=(lines >= 0) & (number > 0), other=-1)
        seen = seen & (((words[:, None] >> tl.arange(0, N)[None, :]) & 1) != 0)
    else:
        back = q_at[:, None] - k_at[None, :]
        allowed = tl.zeros((M, N), tl.int1)
        for n in tl.static_range(BOXES):
            box = tiles.rule + 6 * n
            inside = (back >= tl.load(box)) & (back <= tl.load(box + 1))
            in_rows = (q_at >= tl.load(box + 2)) & (q_at <= tl.load(box + 3))
            in_cols = (k_at >= tl.load(box + 4)) & (k_at <= tl.load(box + 5))
            allowed = allowed | (inside & in_rows[:, None] & in_cols[None, :])
        seen = seen & allowed
    return seen


@jit
def distances(tiles, row, i, j, n_q, n_k, M: tl.constexpr, N: tl.constexpr):
    """(M, N) of k − q, in positions."""
    q_at = tl.load(tiles.q_place + (row * n_q + i) * M + tl.arange(0, M))
    k_at = tl.load(tiles.k_place + (row * n_k + j) * N + tl.arange(0, N))
    return k_at[None, :] - q_at[:, None]


@jit
def buckets(tiles, bias, row, i, j, n_q, n_k, reach, M: tl.constexpr, N: tl.constexpr):
    """(M, N): in which bucket each pair's distance falls; those beyond ±reach fall where that does."""
    distance = distances(tiles, row, i, j, n_q, n_k, M, N)
    return tl.load(bias.buckets + reach + tl.minimum(tl.maximum(distance, -reach), reach))


@jit
def scores(
    q,  # (M, DP)
    k,  # (N, DP)
    tiles,
    bias,
    bias_strides,
    b,
    row,
    h,
    i,
    j,
    t,
    s,
    n_q,
    n_k,
    reach,
    scale,
    softcap,
    M: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    BIAS: tl.constexpr,
    CAP: tl.constexpr,
    BOXES: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PER_HEAD: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Scores (M, N), and tanh(score / softcap) where there is a soft-cap (else the scores again)."""
    log2e = 1.4426950408889634
    x = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    bent = x
    if CAP:
        bent = 1.0 - 2.0 / (tl.exp(x * (2.0 / softcap)) + 1.0)  # tanh
        x = bent * softcap
    x = x * log2e
    if BIAS == 1:  # slopes: −m_h |q − k|
        distance = distances(tiles, row, i, j, n_q, n_k, M, N)
        x -= tl.load(bias.numbers + h) * log2e * tl.abs(distance).to(tl.float32)
    if BIAS == 2:  # buckets of distance: one number for each and each head
        bucket = buckets(tiles, bias, row, i, j, n_q, n_k, reach, M, N)
        x += tl.load(bias.numbers + bucket * H + h).to(tl.float32) * log2e
    if BIAS == 3:  # a tensor that broadcasts to (B, H, T, S)
        rows = (i * M + tl.arange(0, M)).to(tl.int64)
        cols = (j * N + tl.arange(0, N)).to(tl.int64)
        of_head = bias.numbers + b * bias_strides[0] + h.to(tl.int64) * bias_strides[1]
        at = of_head + rows[:, None] * bias_strides[2] + cols[None, :] * bias_strides[3]
        x += tl.load(at, mask=(rows < t)[:, None] & (cols < s)[None, :], other=0.0).to(tl.float32) * log2e
    if MASKED:
        x = tl.where(visible(tiles, row, h, i, j, n_q, n_k, M, N, H, BOXES, SEGMENTS, PER_HEAD), x, float("-inf"))
    return x, bent


@jit
def kept(seed, b, h, i, j, dropout, M: tl.constexpr, N: tl.constexpr):
    """(M, N) boolean: the weights that dropout keeps. Philox (Salmon et al. 2011) of (key, query, head, batch row): the same
    in every kernel, for any tiles, and never repeated within a call."""
    zero = tl.zeros((M, N), tl.int32)
    key = zero + (j * N + tl.arange(0, N))[None, :]
    query = zero + (i * M + tl.arange(0, M))[:, None]
    bits, _, _, _ = tl.philox(tl.load(seed), key, query, zero + h, zero + b.to(tl.int32), 7)
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08 >= dropout  # 24 bits · 2⁻²⁴, in [0, 1)


@jit
def gradients(
    q,
    k,
    v,
    grad,
    norm,  # log-sum-exp in units of log 2, +∞ for rows that see nothing
    delta,
    tiles,
    bias,
    bias_strides,
    seed,
    b,
    row,
    h,
    i,
    j,
    t,
    s,
    n_q,
    n_k,
    reach,
    scale,
    softcap,
    dropout,
    M: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    BIAS: tl.constexpr,
    CAP: tl.constexpr,
    DROPOUT: tl.constexpr,
    BOXES: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PER_HEAD: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Of a tile, recomputed: the weights as they met the values (M, N); the gradients of scores + bias, w ∘ (dw − δ), and
    of scale · QKᵀ, which a soft-cap lessens by 1 − tanh²."""
    x, bent = scores(
        *(q, k, tiles, bias, bias_strides, b, row, h, i, j, t, s, n_q, n_k, reach, scale, softcap),
        *(M, N, H, BIAS, CAP, BOXES, SEGMENTS, PER_HEAD, PRECISION, MASKED),
    )
    w = tl.exp2(x - norm[:, None])
    d_w = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    met = w
    if DROPOUT:
        keep = kept(seed, b, h, i, j, dropout, M, N)
        grown = 1.0 / (1.0 - dropout)
        met = tl.where(keep, w * grown, 0.0)
        d_w = tl.where(keep, d_w * grown, 0.0)
    d_biased = w * (d_w - delta[:, None])
    if MASKED:  # a hidden value may be NaN, and 0 · NaN is NaN
        d_biased = tl.where(x == float("-inf"), 0.0, d_biased)
    d_x = d_biased
    if CAP:
        d_x = d_biased * (1.0 - bent * bent)
    return met, d_biased, d_x
