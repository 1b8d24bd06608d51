# mypy: ignore-errors
"""What the flash kernels share: loads, masks, scores, dropout and gradients of one tile of M queries × N keys.

`p` is the call's `launch.Problem`, `C` its `launch.Constants`. Scores are in units of log 2, s = log₂e · (cap(scale · QKᵀ)
+ bias), because the device's exponential is 2ˣ. Hidden pairs have s = −∞. Offsets that grow with the batch or the length
are computed in 64 bits.
"""

from __future__ import annotations

from .language import jit, tl


@jit
def program(n_tiles, n_heads):
    """Tile, head and batch row of this program."""
    number = tl.program_id(0)
    return number % n_tiles, number // n_tiles % n_heads, (number // n_tiles // n_heads).to(tl.int64)


@jit
def head_of(x, strides, b, h):
    """Pointer to head h of batch row b, for strides (row of the batch, token, head)."""
    return x + b * strides[0] + h.to(tl.int64) * strides[2]


@jit
def tile_counts(counts, at, C: tl.constexpr):
    """How many tiles to visit need no mask, and how many there are in all."""
    full = tl.load(counts + at * 2)
    if C.BIAS == 3:
        full = full * 0  # −∞ in a bias may hide pairs in any tile
    return full, tl.load(counts + at * 2 + 1)


@jit
def load_tile(
    ptr, first, stride, limit, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr
):
    """Rows first … first + ROWS − 1 of a (limit, WIDTH) matrix as (ROWS, PADDED), 0 beyond its edges.

    Without EDGE all rows are inside the matrix.
    """
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    at = ptr + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if EDGE or WIDTH != PADDED:
        return tl.load(at, mask=(rows < limit)[:, None] & (columns < WIDTH)[None, :], other=0.0)
    return tl.load(at)


@jit
def store_tile(ptr, value, first, stride, limit, ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The inverse of `load_tile`, rounded to the dtype of the matrix."""
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
def capped(x, softcap):
    """tanh(x / softcap)."""
    return 1.0 - 2.0 / (tl.exp(x * (2.0 / softcap)) + 1.0)


@jit
def softmax_step(x, top, total):
    """One step of the online soft-max over scores x: weights, the factor by which earlier sums shrink, new top and total."""
    higher = tl.maximum(top, tl.max(x, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen nothing yet
    w = tl.exp2(x - base[:, None])
    fade = tl.exp2(top - base)
    return w, fade, higher, total * fade + tl.sum(w, 1)


@jit
def softmax_end(acc, top, total):
    """Output and natural log-sum-exp from the sums; 0 and −∞ for rows that saw nothing."""
    dead = total == 0.0
    norm = tl.where(dead, float("-inf"), (top + tl.log2(total)) * 0.6931471805599453)
    return acc / tl.where(dead, 1.0, total)[:, None], norm


@jit
def visible(p, b, h, i, j, C: tl.constexpr):
    """(M, N) boolean: which pairs of tile (i, j) the pattern, segments and padding allow."""
    tiles = p.tiles
    map_row = b * C.MAPS
    rows = (map_row * p.n_q + i) * C.M + tl.arange(0, C.M)
    cols = (map_row * p.n_k + j) * C.N + tl.arange(0, C.N)
    q_at = tl.load(tiles.q_place + rows)
    k_at = tl.load(tiles.k_place + cols)
    seen = (q_at >= 0)[:, None] & (k_at >= 0)[None, :]
    if C.SEGMENTS:
        seen = seen & (tl.load(tiles.q_segment + rows)[:, None] == tl.load(tiles.k_segment + cols)[None, :])
    if C.BOXES < 0:  # the tile's mask: one word of N bits for each query
        number = tl.load(tiles.kind + (map_row * p.n_q + i) * p.n_k + j).to(tl.int64)  # from 1; 0 is a full tile
        mask = (number - 1) * C.H + h if C.PER_HEAD else number - 1
        lines = tl.arange(0, C.M)
        words = tl.load(tiles.rule + mask * C.M + lines, mask=(lines >= 0) & (number > 0), other=-1)
        seen = seen & (((words[:, None] >> tl.arange(0, C.N)[None, :]) & 1) != 0)
    else:
        back = q_at[:, None] - k_at[None, :]
        allowed = tl.zeros((C.M, C.N), tl.int1)
        for n in tl.static_range(C.BOXES):
            box = tiles.rule + 6 * n
            inside = (back >= tl.load(box)) & (back <= tl.load(box + 1))
            in_rows = (q_at >= tl.load(box + 2)) & (q_at <= tl.load(box + 3))
            in_cols = (k_at >= tl.load(box + 4)) & (k_at <= tl.load(box + 5))
            allowed = allowed | (inside & in_rows[:, None] & in_cols[None, :])
        seen = seen & allowed
    return seen


@jit
def distances(p, b, i, j, C: tl.constexpr):
    """(M, N) of k − q, in positions."""
    q_at = tl.load(p.tiles.q_place + (b * C.MAPS * p.n_q + i) * C.M + tl.arange(0, C.M))
    k_at = tl.load(p.tiles.k_place + (b * C.MAPS * p.n_k + j) * C.N + tl.arange(0, C.N))
    return k_at[None, :] - q_at[:, None]


@jit
def buckets(p, b, i, j, C: tl.constexpr):
    """(M, N): the bucket of each pair's distance; distances beyond ±reach share the bucket of the reach."""
    distance = distances(p, b, i, j, C)
    return tl.load(p.bias.buckets + p.reach + tl.minimum(tl.maximum(distance, -p.reach), p.reach))


@jit
def scores(p, q, k, b, h, i, j, C: tl.constexpr, MASKED: tl.constexpr):
    """Scores (M, N) of q (M, DP) and k (N, DP), and tanh(score / softcap) if there is a soft-cap (else the scores)."""
    log2e = 1.4426950408889634
    x = tl.dot(q, tl.trans(k), input_precision=C.PRECISION) * p.scale
    bent = x
    if C.CAP:
        bent = capped(x, p.softcap)
        x = bent * p.softcap
    x = x * log2e
    if C.BIAS == 1:  # slopes: −m_h |q − k|
        x -= tl.load(p.bias.numbers + h) * log2e * tl.abs(distances(p, b, i, j, C)).to(tl.float32)
    if C.BIAS == 2:  # buckets of distance: one number for each bucket and head
        x += tl.load(p.bias.numbers + buckets(p, b, i, j, C) * C.H + h).to(tl.float32) * log2e
    if C.BIAS == 3:  # a tensor that broadcasts to (B, H, T, S)
        rows = (i * C.M + tl.arange(0, C.M)).to(tl.int64)
        cols = (j * C.N + tl.arange(0, C.N)).to(tl.int64)
        of_head = p.bias.numbers + b * p.bias_strides[0] + h.to(tl.int64) * p.bias_strides[1]
        at = of_head + rows[:, None] * p.bias_strides[2] + cols[None, :] * p.bias_strides[3]
        x += tl.load(at, mask=(rows < p.t)[:, None] & (cols < p.s)[None, :], other=0.0).to(tl.float32) * log2e
    if MASKED:
        x = tl.where(visible(p, b, h, i, j, C), x, float("-inf"))
    return x, bent


@jit
def mixed(a, b, TURN: tl.constexpr):
    a = a + b
    return a, ((b << TURN) | (b >> (32 - TURN))) ^ a


@jit
def threefry(low, high, a, b):
    """Threefry2x32 with 20 rounds (Salmon et al. 2011) of counters (a, b), with a key of two words: all uint32."""
    third = low ^ high ^ 0x1BD11BDA
    a, b = a + low, b + high
    for i in tl.static_range(5):
        if i % 2 == 0:
            a, b = mixed(a, b, 13)
            a, b = mixed(a, b, 15)
            a, b = mixed(a, b, 26)
            a, b = mixed(a, b, 6)
        else:
            a, b = mixed(a, b, 17)
            a, b = mixed(a, b, 29)
            a, b = mixed(a, b, 16)
            a, b = mixed(a, b, 24)
        if i % 3 == 0:
            a, b = a + high, b + third
        elif i % 3 == 1:
            a, b = a + third, b + low
        else:
            a, b = a + low, b + high
        b = b + (i + 1)
    return a, b


@jit
def kept(p, b, h, i, j, C: tl.constexpr):
    """(M, N) boolean: the weights that dropout keeps, by the mask of `DropoutMask.weights`: the same in every kernel, for
    tiles of any size."""
    seed = tl.load(p.seed)
    zero = tl.zeros((C.M, C.N), tl.uint32)
    low, high = (seed & 0xFFFFFFFF).to(tl.uint32) + zero, (seed >> 32).to(tl.uint32) + zero
    low, high = threefry(low, high, zero + b.to(tl.uint32), zero + h.to(tl.uint32))
    key = j * C.N + tl.arange(0, C.N)[None, :]
    query = i * C.M + tl.arange(0, C.M)[:, None]
    first, second = threefry(low, high, zero + query.to(tl.uint32), zero + (key // 4).to(tl.uint32))
    word = tl.where(key % 4 < 2, first, second)
    bits = tl.where(key % 2 == 0, word & 0xFFFF, word >> 16)
    return bits.to(tl.float32) * 1.52587890625e-05 >= p.dropout  # 16 bits · 2⁻¹⁶, in [0, 1)


@jit
def gradients(p, q, k, v, grad, norm, delta, b, h, i, j, C: tl.constexpr, MASKED: tl.constexpr):
    """Of a tile, recomputed: the weights that multiply the values (M, N); the gradients of scores + bias, w ∘ (dw − δ), and
    of scale · QKᵀ, which a soft-cap multiplies by 1 − tanh².

    norm: the log-sum-exp in units of log 2, +∞ for rows that see nothing.
    """
    x, bent = scores(p, q, k, b, h, i, j, C, MASKED)
    w = tl.exp2(x - norm[:, None])
    d_w = tl.dot(grad, tl.trans(v), input_precision=C.PRECISION)
    dropped = w
    if C.DROPOUT:
        keep = kept(p, b, h, i, j, C)
        grown = 1.0 / (1.0 - p.dropout)
        dropped = tl.where(keep, w * grown, 0.0)
        d_w = tl.where(keep, d_w * grown, 0.0)
    d_biased = w * (d_w - delta[:, None])
    if MASKED:  # a hidden value may be NaN, and 0 · NaN is NaN
        d_biased = tl.where(x == float("-inf"), 0.0, d_biased)
    d_x = d_biased
    if C.CAP:
        d_x = d_biased * (1.0 - bent * bent)
    return dropped, d_biased, d_x
