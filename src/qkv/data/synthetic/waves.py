"""Generated time series: sums of two sine waves, a drifting trend and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from ..readers.time_series import Numbers, SeriesSource


class Waves(SeriesSource, kind="waves"):
    """Generated series: each column has its own slow and fast wave of amplitude 1, a random-walk trend, and noise.

    `noise` is the standard deviation of the noise: the mean squared error of a forecast can't be below noise².
    """

    length: int = Field(default=4000, gt=0)
    width: int = Field(default=3, gt=0)
    noise: float = Field(default=0.2, ge=0)
    seed: int = 0

    def values(self) -> tuple[Numbers, tuple[str, ...]]:
        random: Any = np.random.default_rng(self.seed)
        time = np.arange(self.length)[:, None]
        fast, slow = random.uniform(10, 20, self.width), random.uniform(40, 80, self.width)
        phases = random.uniform(0, 2 * np.pi, (2, self.width))
        drift = np.cumsum(random.normal(0, 0.02, (self.length, self.width)), 0)
        values = np.sin(2 * np.pi * time / fast + phases[0]) + np.sin(2 * np.pi * time / slow + phases[1])
        values += drift + random.normal(0, self.noise, values.shape)
        return values.astype(np.float32).astype(np.float64), tuple(f"wave {i + 1}" for i in range(self.width))
