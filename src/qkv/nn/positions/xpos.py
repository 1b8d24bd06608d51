"""xPos (Sun et al. 2022): rotary positions whose scores also decay with distance, pair by pair of coordinates."""

from __future__ import annotations

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from ...core.layout import Layout
from .base import PositionModule, Tables, Widths
from .rotary import Rotary, RotaryTurn


class XPos(Rotary, kind="xpos"):
    """Rotary, with the query at position m scaled by ζ_i^(m/`scale_base`) and the key at n by ζ_i^(−n/`scale_base`).

    ζ_i = (2i/R + γ)/(1 + γ) for the i-th of R/2 pairs, γ = 0.4: a score decays by ζ_i^((m−n)/`scale_base`), faster for
    pairs that rotate fast. Meant for causal decoders. At the default `scale_base` keys overflow fp16 after about 4500
    positions, bf16 and fp32 after about 35 000.
    """

    scale_base: float = Field(default=512.0, gt=0)

    def module(self, widths: Widths) -> PositionModule:
        return XPosTurn(self, self.width(widths.d_head))


class XPosTurn(RotaryTurn):
    """The module of `XPos`. Its tables are cos and sin for queries, then for keys."""

    def __init__(self, spec: XPos, width: int) -> None:
        super().__init__(spec, width)
        self.scale_base = spec.scale_base

    def tables(self, layout: Layout) -> Tables:
        cos, sin = super().tables(layout)
        zeta = (self.turn.exponents(layout.device) + 0.4) / 1.4
        position = layout.positions[..., 0].clamp(min=0).float()[..., None, None]
        q, k = zeta ** (position / self.scale_base), zeta ** (-position / self.scale_base)
        return cos * q, sin * q, cos * k, sin * k

    def rotate_queries(self, q: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        return self.rotate(q, tables[:2])

    def rotate_keys(self, k: Float[Tensor, "B T K D"], tables: Tables) -> Float[Tensor, "B T K D"]:
        return self.rotate(k, tables[2:])
