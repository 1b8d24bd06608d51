# mypy: ignore-errors
"""FlashAttention-2's backward pass (Dao 2023, algorithm 2) as two kernels, and a third for a bias that is a tensor.

Each program owns what it writes and recomputes the weights that it needs: no atomics, the same bits every time.

    P = exp(S − lse),  dV = PᵀdO,  dP = dO Vᵀ,  dS = P ∘ (dP − δ),  δ = rowsum(dO ∘ O) − dlse,  dQ = scale · dS K,
    dK = scale · dSᵀQ
"""

from __future__ import annotations

from .language import jit, tl, tuned
from .tile import buckets, finite, gradients, load_tile, store_tile


@jit
def norms(lse, first, t, M: tl.constexpr):
    """Log-sum-exps of rows first …, in units of log 2; +∞ where a row sees nothing, or is not there: weights of 0."""
    rows = first + tl.arange(0, M)
    norm = tl.load(lse + rows, mask=rows < t, other=float("-inf"))
    return tl.where(norm == float("-inf"), float("inf"), norm * 1.4426950408889634)


@jit
def deltas(delta, first, t, M: tl.constexpr):
    """δ of rows first …"""
    rows = first + tl.arange(0, M)
    return tl.load(delta + rows, mask=rows < t, other=0.0)


@tuned((4, 1), (4, 2), (8, 1), (8, 2))
@jit
def backward_queries(
    q,
    k,
    v,
    out,
    grad,  # of out
    lse,
    grad_lse,
    delta,  # (B, H, T), written here for the kernels that follow
    d_q,
    d_buckets,  # (B, H, n_q, NB): what each tile of queries adds to the gradients of the buckets
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
    n_buckets,
    M: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    DP: tl.constexpr,
    EP: tl.constexpr,
    NB: tl.constexpr,  # 0 where no bucket is trained
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
    i = n_q - 1 - program % n_q
    h = program // n_q % H
    b = (program // n_q // H).to(tl.int64)
    row = b * MAPS
    k_head = k + b * k_strides[0] + (h // G).to(tl.int64) * k_strides[2]
    v_head = v + b * v_strides[0] + (h // G).to(tl.int64) * v_strides[2]
    q_tile = load_tile(q + b * q_strides[0] + h.to(tl.int64) * q_strides[2], i * M, q_strides[1], t, M, D, DP, True)
    of_head = (b * t * H + h) * E
    grad_tile = load_tile(grad + of_head, i * M, H * E, t, M, E, EP, True)
    out_tile = load_tile(out + of_head, i * M, H * E, t, M, E, EP, True)
    rows = i * M + tl.arange(0, M)
    slope = tl.load(grad_lse + (b * H + h) * t + rows, mask=rows < t, other=0.0)
    own = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1) - slope
    tl.store(delta + (b * H + h) * t + rows, own, mask=rows < t)
    norm = norms(lse + (b * H + h) * t, i * M, t, M)
    acc = tl.zeros((M, DP), tl.float32)
    if NB > 0:
        numbers = tl.arange(0, NB)
        sums = tl.zeros((NB,), tl.float32)
    whole = tl.load(tiles.column_counts + (row * n_q + i) * 2)
    listed = tl.load(tiles.column_counts + (row * n_q + i) * 2 + 1)
    if BIAS == 3:
        whole = whole * 0
    for MASKED in tl.static_range(2):
        for n in range(whole * MASKED, whole + (listed - whole) * MASKED):
            j = tl.load(tiles.columns + (row * n_q + i) * n_k + n)
            k_tile = load_tile(k_head, j * N, k_strides[1], s, N, D, DP, MASKED)
            v_tile = load_tile(v_head, j * N, v_strides[1], s, N, E, EP, MASKED)
            _, d_biased, d_x = gradients(
                *(q_tile, k_tile, v_tile, grad_tile, norm, own, tiles, bias, bias_strides, seed, b, row, h, i, j),
                *(t, s, n_q, n_k, reach, scale, softcap, dropout, M, N, H),
                *(BIAS, CAP, DROPOUT, BOXES, SEGMENTS, PER_HEAD, PRECISION, MASKED),
            )
            if NB > 0:
                bucket = buckets(tiles, bias, row, i, j, n_q, n_k, reach, M, N)
                for number in range(n_buckets):
                    share = tl.sum(tl.sum(tl.where(bucket == number, d_biased, 0.0), 1), 0)
                    sums += tl.where(numbers == number, share, 0.0)
            if MASKED:
                k_tile = finite(k_tile)
            acc = tl.dot(d_x.to(k_tile.dtype), k_tile, acc, input_precision=PRECISION)
    store_tile(d_q + (b * t * H + h) * D, acc * scale, i * M, H * D, t, M, D, DP)
    if NB > 0:
        tl.store(d_buckets + ((b * H + h) * n_q + i) * NB + numbers, sums)


@tuned((4, 1), (4, 2), (8, 1), (8, 2))
@jit
def backward_keys(
    q,
    k,
    v,
    grad,
    lse,
    delta,
    d_k,  # (B, S, K, D)
    d_v,  # (B, S, K, E)
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
    """One program for each tile of keys of one key-value head: it meets the tiles of all G query heads that share it."""
    program = tl.program_id(0)
    j = program % n_k
    shared = program // n_k % (H // G)
    b = (program // n_k // (H // G)).to(tl.int64)
    row = b * MAPS
    k_tile = load_tile(
        k + b * k_strides[0] + shared.to(tl.int64) * k_strides[2], j * N, k_strides[1], s, N, D, DP, True
    )
    v_tile = load_tile(
        v + b * v_strides[0] + shared.to(tl.int64) * v_strides[2], j * N, v_strides[1], s, N, E, EP, True
    )
    acc_k = tl.zeros((N, DP), tl.float32)
    acc_v = tl.zeros((N, EP), tl.float32)
    whole = tl.load(tiles.row_counts + (row * n_k + j) * 2)
    listed = tl.load(tiles.row_counts + (row * n_k + j) * 2 + 1)
    if BIAS == 3:
        whole = whole * 0
    for member in range(G):
        h = shared * G + member
        q_head = q + b * q_strides[0] + h.to(tl.int64) * q_strides[2]
        for MASKED in tl.static_range(2):
            for n in range(whole * MASKED, whole + (listed - whole) * MASKED):
                i = tl.load(tiles.rows + (row * n_k + j) * n_q + n)
                q_tile = load_tile(q_head, i * M, q_strides[1], t, M, D, DP, MASKED)
                grad_tile = load_tile(grad + (b * t * H + h) * E, i * M, H * E, t, M, E, EP, MASKED)
                norm = norms(lse + (b * H + h) * t, i * M, t, M)
                own = deltas(delta + (b * H + h) * t, i * M, t, M)
                met, _, d_x = gradients(
                    *(q_tile, k_tile, v_tile, grad_tile, norm, own, tiles, bias, bias_strides, seed, b, row, h, i, j),
                    *(t, s, n_q, n_k, reach, scale, softcap, dropout, M, N, H),
                    *(BIAS, CAP, DROPOUT, BOXES, SEGMENTS, PER_HEAD, PRECISION, MASKED),
                )
                if MASKED:
                    q_tile = finite(q_tile)  # a padded query may hold anything
                acc_v = tl.dot(tl.trans(met.to(grad_tile.dtype)), grad_tile, acc_v, input_precision=PRECISION)
                acc_k = tl.dot(tl.trans(d_x.to(q_tile.dtype)), q_tile, acc_k, input_precision=PRECISION)
    store_tile(d_k + (b * s * (H // G) + shared) * D, acc_k * scale, j * N, H // G * D, s, N, D, DP)
    store_tile(d_v + (b * s * (H // G) + shared) * E, acc_v, j * N, H // G * E, s, N, E, EP)


@tuned((4, 1), (8, 1))
@jit
def backward_bias(
    q,
    k,
    v,
    grad,
    lse,
    delta,
    d_bias,  # the bias's shape, contiguous, fp32
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
    batch,
    OVER_B: tl.constexpr,  # which axes the bias is broadcast over, and so summed over here
    OVER_H: tl.constexpr,
    OVER_T: tl.constexpr,
    OVER_S: tl.constexpr,
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
    """One program for each tile of the bias: it meets every head, row of the batch and tile that shares it."""
    program = tl.program_id(0)
    n_cols = 1 if OVER_S else n_k
    n_rows = 1 if OVER_T else n_q
    n_heads = 1 if OVER_H else H
    j_own = program % n_cols
    i_own = program // n_cols % n_rows
    h_own = program // n_cols // n_rows % n_heads
    b_own = program // n_cols // n_rows // n_heads
    acc = tl.zeros((M, N), tl.float32)
    for b_number in range(b_own, batch if OVER_B else b_own + 1):
        b = (b_own * 0 + b_number).to(tl.int64)
        row = b * MAPS
        for h_number in range(h_own, H if OVER_H else h_own + 1):
            h = h_own * 0 + h_number
            for i in range(i_own, n_q if OVER_T else i_own + 1):
                for j in range(j_own, n_k if OVER_S else j_own + 1):
                    if tl.load(tiles.kind + (row * n_q + i) * n_k + j) >= 0:
                        q_head = q + b * q_strides[0] + h.to(tl.int64) * q_strides[2]
                        k_head = k + b * k_strides[0] + (h // G).to(tl.int64) * k_strides[2]
                        v_head = v + b * v_strides[0] + (h // G).to(tl.int64) * v_strides[2]
                        norm = norms(lse + (b * H + h) * t, i * M, t, M)
                        own = deltas(delta + (b * H + h) * t, i * M, t, M)
                        _, d_biased, _ = gradients(
                            load_tile(q_head, i * M, q_strides[1], t, M, D, DP, True),
                            load_tile(k_head, j * N, k_strides[1], s, N, D, DP, True),
                            load_tile(v_head, j * N, v_strides[1], s, N, E, EP, True),
                            load_tile(grad + (b * t * H + h) * E, i * M, H * E, t, M, E, EP, True),
                            *(norm, own, tiles, bias, bias_strides, seed, b, row, h, i, j),
                            *(t, s, n_q, n_k, reach, scale, softcap, dropout, M, N, H),
                            *(BIAS, CAP, DROPOUT, BOXES, SEGMENTS, PER_HEAD, PRECISION, True),
                        )
                        acc += d_biased
    rows = i_own * M + tl.arange(0, M)
    cols = j_own * N + tl.arange(0, N)
    own_matrix = d_bias + (b_own.to(tl.int64) * n_heads + h_own) * (1 if OVER_T else t) * (1 if OVER_S else s)
    if OVER_T and OVER_S:
        tl.store(own_matrix, tl.sum(tl.sum(acc, 1), 0))
    elif OVER_T:
        tl.store(own_matrix + cols, tl.sum(acc, 0), mask=cols < s)
    elif OVER_S:
        tl.store(own_matrix + rows, tl.sum(acc, 1), mask=rows < t)
    else:
        at = own_matrix + rows.to(tl.int64)[:, None] * s + cols[None, :]
        tl.store(at, acc, mask=(rows < t)[:, None] & (cols < s)[None, :])
