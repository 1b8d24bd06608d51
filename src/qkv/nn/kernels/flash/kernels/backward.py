# mypy: ignore-errors
"""FlashAttention-2's backward pass (Dao 2023, algorithm 2) as two kernels, and a third for a bias that is a tensor.

Each program alone writes its part of the result and recomputes the weights that it needs: no atomics, the same bits every
time.

    P = exp(S − lse),  dV = PᵀdO,  dP = dO Vᵀ,  dS = P ∘ (dP − δ),  δ = rowsum(dO ∘ O) − dlse,  dQ = scale · dS K,
    dK = scale · dSᵀQ

Arguments of all kernels: grad, the gradient of `out`; lse and delta (δ), both (B, H, T).
"""

from __future__ import annotations

from .language import jit, tl, tuned
from .tile import buckets, finite, gradients, head_of, load_tile, program, store_tile, tile_counts


@jit
def load_norms(lse, first, t, M: tl.constexpr):
    """Log-sum-exps of rows first …, in units of log 2; +∞ if a row sees nothing or is beyond the end: weights of 0."""
    rows = first + tl.arange(0, M)
    norm = tl.load(lse + rows, mask=rows < t, other=float("-inf"))
    return tl.where(norm == float("-inf"), float("inf"), norm * 1.4426950408889634)


@jit
def load_deltas(delta, first, t, M: tl.constexpr):
    """δ of rows first …"""
    rows = first + tl.arange(0, M)
    return tl.load(delta + rows, mask=rows < t, other=0.0)


@tuned((4, 1), (4, 2), (8, 1), (8, 2))
@jit
def backward_queries(
    p, out, grad, lse, grad_lse, delta, d_q, d_buckets, n_buckets, size, NB: tl.constexpr, C: tl.constexpr
):
    """One program for each tile of queries: writes d_q, and delta for the kernels that follow.

    d_buckets: (B, H, n_q, NB), the part of each tile in the gradients of the buckets; NB is 0 if no bucket is trained.
    """
    i, h, b = program(p.n_q, C.H)
    i = p.n_q - 1 - i
    at = b * C.MAPS * p.n_q + i
    k_head = head_of(p.k, p.k_strides, b, h // C.G)
    v_head = head_of(p.v, p.v_strides, b, h // C.G)
    q_tile = load_tile(head_of(p.q, p.q_strides, b, h), i * C.M, p.q_strides[1], p.t, C.M, C.D, C.DP, True)
    first = (b * p.t * C.H + h) * C.E
    grad_tile = load_tile(grad + first, i * C.M, C.H * C.E, p.t, C.M, C.E, C.EP, True)
    out_tile = load_tile(out + first, i * C.M, C.H * C.E, p.t, C.M, C.E, C.EP, True)
    of_head = (b * C.H + h) * p.t
    rows = i * C.M + tl.arange(0, C.M)
    own = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    own -= load_deltas(grad_lse + of_head, i * C.M, p.t, C.M)
    tl.store(delta + of_head + rows, own, mask=rows < p.t)
    norm = load_norms(lse + of_head, i * C.M, p.t, C.M)
    acc = tl.zeros((C.M, C.DP), tl.float32)
    if NB > 0:
        numbers = tl.arange(0, NB)
        sums = tl.zeros((NB,), tl.float32)
    full, listed = tile_counts(p.tiles.column_counts, at, C)
    for MASKED in tl.static_range(2):
        for n in range(full * MASKED, full + (listed - full) * MASKED):
            j = tl.load(p.tiles.columns + at * p.n_k + n)
            k_tile = load_tile(k_head, j * C.N, p.k_strides[1], p.s, C.N, C.D, C.DP, MASKED)
            v_tile = load_tile(v_head, j * C.N, p.v_strides[1], p.s, C.N, C.E, C.EP, MASKED)
            _, d_biased, d_x = gradients(p, q_tile, k_tile, v_tile, grad_tile, norm, own, b, h, i, j, C, MASKED)
            if NB > 0:
                bucket = buckets(p, b, i, j, C)
                for number in range(n_buckets):
                    share = tl.sum(tl.sum(tl.where(bucket == number, d_biased, 0.0), 1), 0)
                    sums += tl.where(numbers == number, share, 0.0)
            if MASKED:
                k_tile = finite(k_tile)
            acc = tl.dot(d_x.to(k_tile.dtype), k_tile, acc, input_precision=C.PRECISION)
    store_tile(d_q + (b * p.t * C.H + h) * C.D, acc * p.scale, i * C.M, C.H * C.D, p.t, C.M, C.D, C.DP)
    if NB > 0:
        tl.store(d_buckets + ((b * C.H + h) * p.n_q + i) * NB + numbers, sums)


@tuned((4, 1), (4, 2), (8, 1), (8, 2))
@jit
def backward_keys(p, grad, lse, delta, d_k, d_v, size, C: tl.constexpr):
    """One program for each tile of keys of one key-value head: it meets the tiles of all G query heads that share it.

    d_k: (B, S, K, D). d_v: (B, S, K, E).
    """
    j, shared, b = program(p.n_k, C.H // C.G)
    at = b * C.MAPS * p.n_k + j
    k_tile = load_tile(head_of(p.k, p.k_strides, b, shared), j * C.N, p.k_strides[1], p.s, C.N, C.D, C.DP, True)
    v_tile = load_tile(head_of(p.v, p.v_strides, b, shared), j * C.N, p.v_strides[1], p.s, C.N, C.E, C.EP, True)
    acc_k = tl.zeros((C.N, C.DP), tl.float32)
    acc_v = tl.zeros((C.N, C.EP), tl.float32)
    full, listed = tile_counts(p.tiles.row_counts, at, C)
    for member in range(C.G):
        h = shared * C.G + member
        q_head = head_of(p.q, p.q_strides, b, h)
        of_head = (b * C.H + h) * p.t
        for MASKED in tl.static_range(2):
            for n in range(full * MASKED, full + (listed - full) * MASKED):
                i = tl.load(p.tiles.rows + at * p.n_q + n)
                q_tile = load_tile(q_head, i * C.M, p.q_strides[1], p.t, C.M, C.D, C.DP, MASKED)
                grad_tile = load_tile(grad + (b * p.t * C.H + h) * C.E, i * C.M, C.H * C.E, p.t, C.M, C.E, C.EP, MASKED)
                norm = load_norms(lse + of_head, i * C.M, p.t, C.M)
                own = load_deltas(delta + of_head, i * C.M, p.t, C.M)
                w, _, d_x = gradients(p, q_tile, k_tile, v_tile, grad_tile, norm, own, b, h, i, j, C, MASKED)
                if MASKED:
                    q_tile = finite(q_tile)  # a padded query may hold anything
                acc_v = tl.dot(tl.trans(w.to(grad_tile.dtype)), grad_tile, acc_v, input_precision=C.PRECISION)
                acc_k = tl.dot(tl.trans(d_x.to(q_tile.dtype)), q_tile, acc_k, input_precision=C.PRECISION)
    first = b * p.s * (C.H // C.G) + shared
    store_tile(d_k + first * C.D, acc_k * p.scale, j * C.N, C.H // C.G * C.D, p.s, C.N, C.D, C.DP)
    store_tile(d_v + first * C.E, acc_v, j * C.N, C.H // C.G * C.E, p.s, C.N, C.E, C.EP)


@tuned((4, 1), (8, 1))
@jit
def backward_bias(
    p,
    grad,
    lse,
    delta,
    d_bias,  # the bias's shape, contiguous, fp32
    batch,
    size,
    OVER_B: tl.constexpr,  # which axes the bias is broadcast over, and so summed over here
    OVER_H: tl.constexpr,
    OVER_T: tl.constexpr,
    OVER_S: tl.constexpr,
    C: tl.constexpr,
):
    """One program for each tile of the bias: it meets every head, row of the batch and tile that shares it."""
    number = tl.program_id(0)
    n_cols = 1 if OVER_S else p.n_k
    n_rows = 1 if OVER_T else p.n_q
    n_heads = 1 if OVER_H else C.H
    j_own = number % n_cols
    i_own = number // n_cols % n_rows
    h_own = number // n_cols // n_rows % n_heads
    b_own = number // n_cols // n_rows // n_heads
    acc = tl.zeros((C.M, C.N), tl.float32)
    for b_number in range(b_own, batch if OVER_B else b_own + 1):
        b = (b_own * 0 + b_number).to(tl.int64)
        for h_number in range(h_own, C.H if OVER_H else h_own + 1):
            h = h_own * 0 + h_number
            of_head = (b * C.H + h) * p.t
            for i_number in range(i_own, p.n_q if OVER_T else i_own + 1):
                i = i_own * 0 + i_number
                for j_number in range(j_own, p.n_k if OVER_S else j_own + 1):
                    j = j_own * 0 + j_number
                    if tl.load(p.tiles.kind + (b * C.MAPS * p.n_q + i) * p.n_k + j) >= 0:
                        q_head = head_of(p.q, p.q_strides, b, h)
                        k_head = head_of(p.k, p.k_strides, b, h // C.G)
                        v_head = head_of(p.v, p.v_strides, b, h // C.G)
                        _, d_biased, _ = gradients(
                            p,
                            load_tile(q_head, i * C.M, p.q_strides[1], p.t, C.M, C.D, C.DP, True),
                            load_tile(k_head, j * C.N, p.k_strides[1], p.s, C.N, C.D, C.DP, True),
                            load_tile(v_head, j * C.N, p.v_strides[1], p.s, C.N, C.E, C.EP, True),
                            load_tile(grad + (b * p.t * C.H + h) * C.E, i * C.M, C.H * C.E, p.t, C.M, C.E, C.EP, True),
                            load_norms(lse + of_head, i * C.M, p.t, C.M),
                            load_deltas(delta + of_head, i * C.M, p.t, C.M),
                            *(b, h, i, j, C, True),
                        )
                        acc += d_biased
    rows = i_own * C.M + tl.arange(0, C.M)
    cols = j_own * C.N + tl.arange(0, C.N)
    own_matrix = d_bias + (b_own.to(tl.int64) * n_heads + h_own) * (1 if OVER_T else p.t) * (1 if OVER_S else p.s)
    if OVER_T and OVER_S:
        tl.store(own_matrix, tl.sum(tl.sum(acc, 1), 0))
    elif OVER_T:
        tl.store(own_matrix + cols, tl.sum(acc, 0), mask=cols < p.s)
    elif OVER_S:
        tl.store(own_matrix + rows, tl.sum(acc, 1), mask=rows < p.t)
    else:
        at = own_matrix + rows.to(tl.int64)[:, None] * p.s + cols[None, :]
        tl.store(at, acc, mask=(rows < p.t)[:, None] & (cols < p.s)[None, :])
