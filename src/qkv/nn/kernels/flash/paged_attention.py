"""Paged attention for decoding (Kwon et al. 2023): keys and values lie in pages of a pool, found by a block table."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..request import Result
from .support import refuses_tensors

_LEAST = 256  # keys for which a separate program pays


def paged(
    q: Float[Tensor, "B T H D"],
    pages_k: Float[Tensor, "P N K D"],
    pages_v: Float[Tensor, "P N K E"],
    table: Int[Tensor, "B W"],
    lengths: Int[Tensor, " B"],
    *,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
    return_lse: bool = False,
    splits: int | None = None,
) -> Result:
    """Causal attention of the last T tokens of each row over keys and values in pages (Kwon et al. 2023), without gradient.

    Token n of row b lies in slot n mod N of page `table[b, n // N]`; the row has `lengths[b]` ≥ T tokens, the queries' own
    included. Slots after the last token, and table entries that no token needs, are never read. Keys are split among
    `splits` programs a row (by default as many as fill the device), whose results are merged (Flash-Decoding, Dao et al.
    2023).

    Args:
        scale: 1/√D by default. softcap: as in `attend`. window: how many tokens back a query sees, itself included.

    Returns (B, T, H, E) in q's dtype, or the pair of it and the log-sum-exp (B, H, T). A row without tokens gives 0 and
    −∞. Raises ValueError for shapes that don't fit together, and if the `flash` backend can't serve, with its reason.
    """
    _check(q, pages_k, pages_v, table, lengths)
    if window is not None and window < 1:
        raise ValueError(f"window is how many tokens a query sees, at least 1 (itself), not {window}")
    reason = refuses_tensors(q, pages_k, pages_v)
    if reason is not None:
        raise ValueError(f"paged attention can't be computed here: {reason}; gather the pages and call attend")
    b, t, h, e = *q.shape[:3], pages_v.shape[-1]
    if not (b and t and h and table.numel()):
        out, lse = q.new_zeros(b, t, h, e), q.new_full((b, h, t), float("-inf"), dtype=torch.float32)
        return (out, lse) if return_lse else out
    parts, norms = _parts(
        q,
        pages_k,
        pages_v,
        table.to(torch.int32).contiguous(),
        lengths.to(torch.int32).contiguous(),
        1 / math.sqrt(q.shape[-1]) if scale is None else scale,
        softcap or 0.0,
        window or 0,
        splits,
    )
    top = norms.amax(0)
    weights = (norms - top.masked_fill(top == float("-inf"), 0.0)).exp()
    total = weights.sum(0)
    share = weights / total.masked_fill(total == 0, 1.0)
    out = (parts * share.transpose(2, 3).unsqueeze(-1)).sum(0).to(q.dtype)
    return (out, top + total.log()) if return_lse else out


def _parts(
    q: Tensor,
    pages_k: Tensor,
    pages_v: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    softcap: float,
    window: int,
    splits: int | None,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of each split: (splits, B, T, H, E) and (splits, B, H, T), both in fp32."""
    from .kernels.paged import paged as kernel
    from .launch import Constants, on, padded, precision, rows

    q, pages_k, pages_v = rows(q), rows(pages_k), rows(pages_v)
    (b, t, h, d), (_, page, kv, e) = q.shape, pages_v.shape
    group, n = h // kv, 32 if max(d, e) > 128 else 64
    m = min(64, padded(group * t))
    lines = -(-group * t // m)
    tiles = -(-table.shape[1] * page // n)
    splits = min(tiles, splits or _enough(q, b * kv * lines, tiles * n))
    parts = torch.empty(splits, b, t, h, e, dtype=torch.float32, device=q.device)
    norms = torch.empty(splits, b, h, t, dtype=torch.float32, device=q.device)
    strides = tuple(x.stride()[:3] for x in (q, pages_k, pages_v))
    constants = Constants(m, n, h, group, d, e, padded(d), padded(e), precision(), CAP=softcap > 0)
    with on(q):
        kernel[(lines, b * kv, splits)](
            *(q, pages_k, pages_v, table, lengths, parts, norms, strides),
            *(b, t, table.shape[1], -(-tiles // splits), scale, softcap, window),
            PAGE=page,
            WINDOW=window > 0,
            C=constants.for_kernels(),
            num_warps=4,
            num_stages=2,
        )
    return parts, norms


def _enough(q: Tensor, programs: int, keys: int) -> int:
    """How many splits give every multiprocessor two programs, each with enough keys."""
    if not q.is_cuda:
        return 1
    wanted = 2 * torch.cuda.get_device_properties(q.device).multi_processor_count
    return max(1, min(-(-wanted // programs), keys // _LEAST))


def _check(q: Tensor, pages_k: Tensor, pages_v: Tensor, table: Tensor, lengths: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, pages {tuple(pages_k.shape)} and {tuple(pages_v.shape)}"
    if q.ndim != 4 or pages_k.ndim != 4 or pages_v.ndim != 4:
        raise ValueError(f"q is (batch, tokens, heads, width) and pages are (pages, slots, heads, width); got {shapes}")
    if pages_k.shape[:3] != pages_v.shape[:3] or q.shape[3] != pages_k.shape[3] or q.shape[2] % pages_k.shape[2]:
        raise ValueError(
            f"{shapes} don't fit together: pages of keys and values need the same slots and heads, q's heads a multiple of "
            "theirs, and keys the width of q"
        )
    if table.ndim != 2 or lengths.ndim != 1 or not len(table) == len(lengths) == len(q):
        raise ValueError(
            f"a table is (batch, pages of a row) and lengths are (batch,) for {len(q)} rows; got {tuple(table.shape)} and "
            f"{tuple(lengths.shape)}"
        )
