"""Rotary position embeddings (RoPE): queries and keys are rotated by angles proportional to their positions."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from ...core.layout import Layout
from ..patterns.documents import document_lengths
from .base import Position, PositionModule, Tables, Widths
from .rope_scaling import NoScaling, Scaling, Turn


class Rotary(Position, kind="rotary"):
    """Rotate pairs of coordinates by p · base^(−2i/R), so scores depend on distance only (Su et al. 2021, RoFormer).

    The first R = `fraction` · d_head coordinates are rotated. `pairs` "half" pairs coordinate i with i + R/2 (NeoX,
    Llama in the Hub's layout), "interleaved" pairs 2i with 2i + 1 (the paper, GPT-J). `scaling` changes the rates for
    contexts longer than the training context (`positions.rope_scaling`). Angles and products are fp32.
    """

    base: float = Field(default=10000.0, gt=1)
    pairs: Literal["half", "interleaved"] = "half"
    fraction: float = Field(default=1.0, gt=0, le=1)
    scaling: Scaling = NoScaling()

    @property
    def unbounded(self) -> bool:
        return self.scaling.unbounded

    def width(self, d_head: int) -> int:
        """Return R. Raises ValueError if it is odd or 0."""
        width = int(d_head * self.fraction)
        if width % 2 or width == 0:
            raise ValueError(
                f"rotary positions rotate pairs: fraction {self.fraction} of d_head {d_head} is {width} coordinates, "
                "which has to be even and above 0"
            )
        return width

    def module(self, widths: Widths) -> PositionModule:
        return RotaryTurn(self, self.width(widths.d_head))


class RotaryTurn(PositionModule):
    """The module of `Rotary`. Its tables are cos and sin (B or 1, T, 1, R/2)."""

    def __init__(self, spec: Rotary, width: int) -> None:
        super().__init__()
        self.turn, self.scaling, self.interleaved = Turn(spec.base, width), spec.scaling, spec.pairs == "interleaved"
        self.width, self.magnitude = width, spec.scaling.magnitude()
        spec.scaling.check(self.turn)

    def tables(self, layout: Layout) -> Tables:
        length = document_lengths(layout) if self.scaling.by_length else None
        rates = self.scaling.rates(self.turn, layout.device, length)
        angle = (self.positions(layout) * rates)[:, :, None]
        cos, sin = angle.cos(), angle.sin()
        return (cos, sin) if self.magnitude == 1.0 else (cos * self.magnitude, sin * self.magnitude)

    def positions(self, layout: Layout) -> Float[Tensor, "B T #R/2"]:
        """The position by which each pair turns, in fp32."""
        return layout.positions[..., :1].clamp(min=0).float()

    def rotate(self, x: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        cos, sin = tables
        if x.dtype == torch.float64:
            cos, sin = cos.double(), sin.double()
        rotated, rest = x[..., : self.width], x[..., self.width :]
        if self.interleaved:
            a, b = rotated[..., 0::2], rotated[..., 1::2]
            out = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = rotated.chunk(2, -1)
            out = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([out.to(x.dtype), rest], -1) if rest.shape[-1] else out.to(x.dtype)
