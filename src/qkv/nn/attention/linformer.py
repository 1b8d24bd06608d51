"""Linformer (Wang et al. 2020): attention to keys and values that are projected along the length to a fixed number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.layout import Layout
from ...core.spec import Cost
from ..kernels import backends
from ..kernels.plan import Plan
from ..kernels.request import Request
from ..kv_cache.full import LayerState, SlotTables
from ..patterns.basic import Full
from .linear import refuse_bias, refuse_options
from .mixer import Pass, refuse_crossing
from .multi_head import Attention, MultiHeadAttention


class Linformer(Attention, kind="linformer"):
    """softmax(scale · Q (E K)ᵀ) F V, with E and F of `rank` rows and `max_positions` columns (Wang et al. 2020, §4).

    `share`: "none" has an E and an F for each key-value head, "heads" one E and one F for a layer, "keys-values" one matrix
    for both, "layers" one matrix for all such layers of a stack. The pattern is full, so it can't decode token by token.
    Rotary positions are applied to keys before they are projected.
    """

    max_positions: int = Field(gt=0)
    rank: int = Field(default=256, gt=0)
    share: Literal["none", "heads", "keys-values", "layers"] = "heads"

    adds_bias = False

    @model_validator(mode="after")
    def _projects_all(self) -> Linformer:
        refuse_options(self, "softcap", "backend")
        if not isinstance(self.pattern, Full):
            raise ValueError(
                f"linformer's projection mixes all tokens, so its pattern is full(), not {self.pattern}; for causal models "
                "take attention, linear-attention or performer"
            )
        return self

    @property
    def matrices(self) -> tuple[int, int]:
        """The number of matrices E, and of matrices F, in a layer."""
        each = (self.n_kv_heads or self.n_heads) if self.share == "none" else 1
        return each, each if self.share in ("none", "heads") else 0

    @property
    def shared(self) -> dict[str, tuple[int, ...]]:
        return {"project_keys": (1, self.rank, self.max_positions)} if self.share == "layers" else {}

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadLinformer(self, d_model, name)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        raise ValueError(
            "linformer needs the whole sequence at once and can't decode token by token; take attention, "
            "linear-attention or performer"
        )

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """Attention to `rank` keys, and 2 · rank · T · (D + E) for the projections of each key-value head."""
        _, k, d, e = self.widths(d_model)
        attention = super().cost(d_model, tokens, tokens * self.rank)
        return attention + Cost(
            sum(self.matrices) * self.rank * self.max_positions, 2 * self.rank * tokens * k * (d + e)
        )


class MultiHeadLinformer(MultiHeadAttention):
    """The module of `Linformer`. Parameters besides attention's: project_keys (E) and, if not shared, project_values
    (F), each (K or 1, rank, max_positions)."""

    def __init__(self, spec: Linformer, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        keys, values = spec.matrices
        self.project_keys = nn.Parameter(torch.empty(keys, spec.rank, spec.max_positions))
        self.project_values = nn.Parameter(torch.empty(values, spec.rank, spec.max_positions)) if values else None

    def mixed(
        self, x: Float[Tensor, "B T M"], run: Pass, layout: Layout, state: object = None
    ) -> Float[Tensor, "B T H E"]:
        refuse_bias("linformer", run)
        q = self.normed(self.q(x), self.q_norm)
        k, v = self._keys_values(x)
        q, k = run.rotate_queries(q), run.rotate_keys(k)
        values = self.project_keys if self.project_values is None else self.project_values
        scale = 1 / math.sqrt(self.d_head) if self.scale is None else self.scale
        dropout = self.dropout if self.training else 0.0
        return linformer(q, k, v, self.project_keys, values, layout, scale, dropout)


# -- the mathematics ---------------------------------------------------------------------------------------------------


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

    A token uses the column of its position, so a shorter row uses the first columns, wherever its padding is. Padding adds
    nothing to the projections, and its output is 0.

    Raises ValueError for rows of several documents, and for positions past the N columns.
    """
    if layout.segments is not None and not layout.one_segment:
        raise ValueError(
            "Linformer projects whole rows, which can't hold several documents; set batching.packing to false"
        )
    _check_length(layout, project_keys.shape[-1])
    valid = layout.valid[:, :, None, None]
    q, k, v = (t if layout.padding == "none" else t.masked_fill(~valid, 0.0) for t in (q, k, v))
    k, v = _projected(k, project_keys, layout), _projected(v, project_values, layout)
    rows, short = replace(layout, segments=None), Layout.full(k.shape[1], device=k.device)
    out = backends.run(Request(q, k, v, _FULL, rows, short, None, scale, dropout, None, False, Plan()))
    assert isinstance(out, Tensor)
    return out if layout.padding == "none" else out.masked_fill(~valid, 0.0)


def _check_length(layout: Layout, columns: int) -> None:
    """Raise ValueError for rows longer than the projection. The device is read only if the host can't rule that out."""
    longest = layout.shape[1] + (layout.start or 0)
    if longest > columns and layout.padding != "none":
        longest = int(layout.positions[..., 0].max()) + 1
    if longest > columns:
        raise ValueError(
            f"{longest} tokens don't fit Linformer's projection of max_positions={columns}; shorten the input, or train a "
            "model with more positions"
        )


def _projected(x: Float[Tensor, "B T K W"], projection: Float[Tensor, "K1 R N"], layout: Layout) -> Tensor:
    """Project x along the length, to (B, R, K, W)."""
    tokens = x.shape[1]
    if layout.start is not None and layout.sequential:
        columns = projection[..., layout.start : layout.start + tokens]  # fewer than tokens where padding continues
        return torch.einsum("krt,btkw->brkw", columns.expand(x.shape[2], -1, -1), x[:, : columns.shape[-1]])
    columns = projection[..., layout.positions[..., 0].clamp(min=0)]  # (K1, R, B, T)
    shape = (x.shape[2], -1, x.shape[0], -1)
    return torch.einsum("krbt,btkw->brkw", columns.expand(*shape), x)
