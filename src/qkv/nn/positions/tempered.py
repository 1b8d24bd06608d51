"""Rotary positions with an attention temperature: queries grow slowly with their position (Llama 4, Ministral 3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from ...core.layout import Layout
from .base import PositionModule, Tables, Widths
from .rotary import Rotary, RotaryTurn


class TemperedRotary(Rotary, kind="tempered-rotary"):
    """Rotary, with the query at position p multiplied by 1 + `beta` · ln(1 + ⌊p / `length`⌋) (Meta 2025, Llama 4).

    Scores of long contexts stay sharp: the soft-max over many keys is flatter than over few. Nothing changes for the first
    `length` positions.
    """

    beta: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    length: int = Field(default=8192, gt=0)

    def module(self, widths: Widths) -> PositionModule:
        return TemperedTurn(self, self.width(widths.d_head))


class TemperedTurn(RotaryTurn):
    """The module of `TemperedRotary`. Its tables are cos and sin, then the factors of queries (B or 1, T, 1, 1)."""

    def __init__(self, spec: TemperedRotary, width: int) -> None:
        super().__init__(spec, width)
        self.beta, self.length = spec.beta, spec.length

    def tables(self, layout: Layout) -> Tables:
        spans = torch.floor(layout.positions[..., 0].clamp(min=0) / self.length)
        return (*super().tables(layout), (1 + self.beta * torch.log(1 + spans))[..., None, None])

    def rotate_queries(self, q: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        return self.rotate(q, tables[:2]) * tables[2].to(q.dtype)

    def rotate_keys(self, k: Float[Tensor, "B T K D"], tables: Tables) -> Float[Tensor, "B T K D"]:
        return self.rotate(k, tables[:2])
