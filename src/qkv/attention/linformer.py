"""Linformer (Wang et al. 2020) as a layer: keys and values projected along the length, to a number that stays the same."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.spec import Cost
from ..kernels.request import default_scale
from ..kv_cache.full import LayerState, SlotTables
from ..patterns.basic import Full
from .linear import refuse_bias, refuse_crossing, refuse_options
from .mechanisms.linformer import linformer
from .multi_head import Attention, MultiHeadAttention, Pass


class Linformer(Attention, kind="linformer"):
    """softmax(scale · Q (E K)ᵀ) F V, with E and F of `rank` rows and `max_positions` columns (Wang et al. 2020, §4).

    `share` says what E and F are shared among: "none" has an E and an F for each key-value head, "heads" one E and one F
    for a layer, "keys-values" one matrix in place of both, "layers" one matrix for all such layers of a stack. Every token
    sees all, so the pattern is full, and nothing is decoded token by token. Rotary positions turn keys before they are
    projected.
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
                f"linformer mixes all tokens when it projects them, so its pattern is full(), not {self.pattern}; for "
                "causal models take attention, linear-attention or performer"
            )
        return self

    @property
    def matrices(self) -> tuple[int, int]:
        """How many of E, and of F, a layer uses."""
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
            "linformer needs the whole sequence at once and does not decode token by token; for that take attention, "
            "linear-attention or performer"
        )

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """Attention to `rank` keys, and 2 · rank · T · (D + E) for each key-value head that projects."""
        _, k, d, e = self.widths(d_model)
        whole = super().cost(d_model, tokens, tokens * self.rank)
        return whole + Cost(sum(self.matrices) * self.rank * self.max_positions, 2 * self.rank * tokens * k * (d + e))


class MultiHeadLinformer(MultiHeadAttention):
    """The module of `Linformer`. Parameters besides those of attention: project_keys (E) and, if not shared, project_values
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
        q = self.q_norm(self.q(x).unflatten(-1, (self.n_heads, self.d_head)))
        k, v = self._keys_values(x)
        if run.tables is not None:
            q, k = run.position.rotate(q, run.tables), run.position.rotate(k, run.tables)
        values = self.project_keys if self.project_values is None else self.project_values
        scale = default_scale(self.d_head) if self.scale is None else self.scale
        dropout = self.dropout if self.training else 0.0
        return linformer(q, k, v, self.project_keys, values, layout, scale, dropout)
