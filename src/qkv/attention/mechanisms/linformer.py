"""Linformer: keys and values shortened to a fixed number by projecting along the length, then attended to as ever."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from ...core.layout import Layout
from ...kernels import sdpa
from ...kernels.plan import Plan
from ...kernels.request import Request
from ...patterns.basic import Full

_FULL = Full()


def linformer(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B T K D"],
    v: Float[Tensor, "B T K E"],
    project_keys: Float[Tensor, "K1 R N"],
    project_values: Float[Tensor, "K1 R N"],
    layout: Layout,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "B T H E"]:
    """softmax(scale · Q (E K)ᵀ) F V, E and F being R × N (Wang et al. 2020, eq. 7), one of each or one a key-value head.

    A token uses the column of its position, so that a shorter row uses the first columns, wherever its padding stands.
    Padding adds nothing to what is projected, and as a query gets 0.

    Raises ValueError for rows of several documents, and for positions past the N columns.
    """
    if layout.segments is not None and not layout.one_segment:
        raise ValueError(
            "Linformer projects along a whole row, which can't hold several documents; batch them unpacked"
        )
    _check_length(layout, project_keys.shape[-1])
    valid = layout.valid[:, :, None, None]
    q, k, v = (t if layout.padding == "none" else t.masked_fill(~valid, 0.0) for t in (q, k, v))
    k, v = _projected(k, project_keys, layout), _projected(v, project_values, layout)
    rows, short = replace(layout, segments=None), Layout.full(k.shape[1], device=k.device)
    out = sdpa.run(Request(q, k, v, _FULL, rows, short, None, scale, dropout, None, False, Plan()))
    assert isinstance(out, Tensor)
    return out if layout.padding == "none" else out.masked_fill(~valid, 0.0)


def _check_length(layout: Layout, columns: int) -> None:
    """The host counts where it can; the device is asked only where a row is wider than the projection."""
    longest = layout.shape[1] + (layout.start or 0)
    if longest > columns and layout.padding != "none":
        longest = int(layout.positions[..., 0].max()) + 1
    if longest > columns:
        raise ValueError(
            f"{longest} tokens don't fit Linformer's projection of max_positions={columns}; shorten the input, or build it "
            "with more positions and train it anew"
        )


def _projected(x: Float[Tensor, "B T K W"], projection: Float[Tensor, "K1 R N"], layout: Layout) -> Tensor:
    """(B, R, K, W)."""
    tokens = x.shape[1]
    if layout.start is not None and layout.sequential:
        columns = projection[..., layout.start : layout.start + tokens]  # fewer than tokens where padding goes on
        return torch.einsum("krt,btkw->brkw", columns.expand(x.shape[2], -1, -1), x[:, : columns.shape[-1]])
    columns = projection[..., layout.positions[..., 0].clamp(min=0)]  # (K1, R, B, T)
    shape = (x.shape[2], -1, x.shape[0], -1)
    return torch.einsum("krbt,btkw->brkw", columns.expand(*shape), x)
