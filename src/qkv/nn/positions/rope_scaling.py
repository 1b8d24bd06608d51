"""RoPE scaling: rotary positions for contexts longer than the training context (linear, NTK, YaRN, Llama 3, LongRoPE).

A rotary scheme rotates the i-th of R/2 pairs of coordinates by p · θ_i at position p, with θ_i = base^(−2i/R) and the
wavelength λ_i = 2π/θ_i. A scaling replaces these rates by θ′_i, and may multiply cosines and sines by a `magnitude`, which
multiplies scores by its square. Below, s is `factor`, the new context over that of training, and L is
`original_max_positions`, the context of training. Rates are fp32. Names are the Hub's.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from ...core.spec import Spec

Rates = Float[Tensor, "R/2"] | Float[Tensor, "B T R/2"]


class Turn(NamedTuple):
    """Unscaled rotation: the base and R, the number of rotated coordinates."""

    base: float
    width: int

    def exponents(self, device: torch.device | None = None) -> Float[Tensor, "R/2"]:
        """2i/R."""
        return torch.arange(0, self.width, 2, device=device, dtype=torch.float32) / self.width

    def rates(self, device: torch.device | None = None) -> Float[Tensor, "R/2"]:
        """θ_i."""
        return self.base ** -self.exponents(device)

    def pair_with(self, turns: float, context: int) -> float:
        """Return i, not rounded, of the pair that makes `turns` rotations in a context: λ_i · turns = context."""
        return self.width * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(self.base))


class Scaling(Spec, role="scaling"):
    """Base class of changes of the rates of a rotary scheme.

    If `by_length`, rates depend on the length of each token's sequence, the largest position so far plus one. Decoding with
    a cache then rotates each key by the rates at the time it was fed, as the Hub's models do: cached decoding equals one
    pass up to the length at which rates change, but not beyond it.
    """

    by_length: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False
    """Whether texts may be longer than the model's `max_positions`, which the rates then follow."""

    def check(self, turn: Turn) -> None:
        """Raise ValueError if this scaling can't be applied."""

    def rates(self, turn: Turn, device: torch.device | None, length: Int[Tensor, "B T"] | None = None) -> Rates:
        """Return θ′ of shape (R/2), or (B, T, R/2) if it depends on the length."""
        raise NotImplementedError

    def magnitude(self) -> float:
        """Factor of cosines and sines."""
        return 1.0


class NoScaling(Scaling, kind="none"):
    """θ′ = θ."""

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        return turn.rates(device)


class LinearScaling(Scaling, kind="linear"):
    """θ′ = θ/s: position interpolation (Chen et al. 2023)."""

    factor: float = Field(gt=0)

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        return turn.rates(device) / self.factor


class NTK(Scaling, kind="ntk"):
    """base′ = base · s^(R/(R−2)): the slowest pair is slowed by s, the fastest hardly at all (bloc97 2023, "NTK-aware")."""

    factor: float = Field(gt=0)

    def check(self, turn: Turn) -> None:
        _check_width(self, turn)

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        base = turn.base * self.factor ** (turn.width / (turn.width - 2))
        return turn._replace(base=base).rates(device)


class DynamicNTK(Scaling, kind="dynamic"):
    """base′ = base · (s · n/L − (s − 1))^(R/(R−2)) at a length n > L, else base (emozilla 2023).

    n is the length of each row or packed document, so none depends on the others of its batch. Texts may be longer
    than the model's `max_positions`.
    """

    by_length: ClassVar[bool] = True
    unbounded: ClassVar[bool] = True

    factor: float = Field(gt=0)
    original_max_positions: int = Field(gt=0)

    def check(self, turn: Turn) -> None:
        _check_width(self, turn)

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        if length is None:
            return turn.rates(device)
        over = length.clamp(min=self.original_max_positions) / self.original_max_positions
        base = turn.base * (self.factor * over - (self.factor - 1)) ** (turn.width / (turn.width - 2))
        return base[..., None] ** -turn.exponents(device)


class YaRN(Scaling, kind="yarn"):
    """θ′ = (1 − γ) θ/s + γ θ, where γ falls from 1 to 0 over the pairs that rotate `beta_fast` to `beta_slow` times in L.

    The magnitude is `attention_factor`; by default 0.1 ln s + 1, and with `mscale` and `mscale_all_dim` the quotient of
    0.1 · mscale · ln s + 1 for each (DeepSeek). `truncate` rounds the ramp's ends outwards to whole pairs (Peng et al.
    2023).
    """

    factor: float = Field(gt=0)
    original_max_positions: int = Field(gt=0)
    beta_fast: float = Field(default=32.0, gt=0)
    beta_slow: float = Field(default=1.0, gt=0)
    attention_factor: float | None = Field(default=None, gt=0)
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    @model_validator(mode="after")
    def _fast_is_faster(self) -> YaRN:
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast={self.beta_fast} has to be at least beta_slow={self.beta_slow}")
        return self

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        rates = turn.rates(device)
        low, high = (turn.pair_with(beta, self.original_max_positions) for beta in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, turn.width - 1)
        pair = torch.arange(turn.width // 2, device=device, dtype=torch.float32)
        slow = ((pair - low) / (high - low if high != low else 0.001)).clamp(0, 1)  # 1 − γ
        return slow * rates / self.factor + (1 - slow) * rates

    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._temperature(self.mscale) / self._temperature(self.mscale_all_dim)
        return self._temperature(1.0)

    def _temperature(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1 if self.factor > 1 else 1.0


class Llama3Scaling(Scaling, kind="llama3"):
    """θ′ = θ for λ < L/h, θ/s for λ > L/l, and (1 − γ) θ/s + γ θ between, γ = (L/λ − l)/(h − l) (Llama 3.1, 2024).

    l and h are `low_freq_factor` and `high_freq_factor`.
    """

    factor: float = Field(gt=0)
    low_freq_factor: float = Field(default=1.0, gt=0)
    high_freq_factor: float = Field(default=4.0, gt=0)
    original_max_positions: int = Field(gt=0)

    @model_validator(mode="after")
    def _high_is_higher(self) -> Llama3Scaling:
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor={self.high_freq_factor} has to be above low_freq_factor={self.low_freq_factor}"
            )
        return self

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        rates = turn.rates(device)
        turns = rates * (self.original_max_positions / (2 * math.pi))  # L/λ
        keep = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return (1 - keep) * rates / self.factor + keep * rates


class LongRoPE(Scaling, kind="longrope"):
    """θ′_i = θ_i / f_i, with one searched factor f_i for each pair: `short_factor` up to a length of L, else `long_factor`.

    The magnitude is `attention_factor`, by default √(1 + ln s / ln L) (Ding et al. 2024; Phi-3). The length is that of each
    row or packed document.
    """

    by_length: ClassVar[bool] = True

    short_factor: tuple[float, ...] = Field(min_length=1)
    long_factor: tuple[float, ...] = Field(min_length=1)
    original_max_positions: int = Field(gt=1)
    factor: float = Field(default=1.0, gt=0)
    attention_factor: float | None = Field(default=None, gt=0)

    def check(self, turn: Turn) -> None:
        for name, factors in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if len(factors) != turn.width // 2 or min(factors) <= 0:
                raise ValueError(
                    f"{name} has to be {turn.width // 2} numbers above 0, one for each pair of the {turn.width} rotated "
                    f"coordinates, not {len(factors)} numbers, the least of which is {min(factors)}"
                )

    def rates(self, turn: Turn, device: torch.device | None, length: Tensor | None = None) -> Rates:
        short, long = (
            turn.rates(device) / torch.tensor(f, dtype=torch.float32, device=device)
            for f in (self.short_factor, self.long_factor)
        )
        if length is None:
            return short
        return torch.where(length[..., None] > self.original_max_positions, long, short)

    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_positions)) if self.factor > 1 else 1.0


def _check_width(scaling: Scaling, turn: Turn) -> None:
    if turn.width < 4:
        raise ValueError(f"{scaling.kind} scaling needs at least 4 rotated coordinates, not {turn.width}")
