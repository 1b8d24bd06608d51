"""Points of known laws, for tests."""

from __future__ import annotations

import numpy as np

from qkv.lab.laws.chinchilla import parametric_loss
from qkv.lab.laws.points import Points

CONSTANTS = np.array([1.7, 400.0, 600.0, 0.34, 0.29])
BUDGETS = (1e17, 3e17, 1e18, 3e18, 1e19)


def made_points(noise: float = 0.0, seed: int = 0, constants: np.ndarray = CONSTANTS, sizes: int = 7) -> Points:
    """Runs at five budgets, with losses of the parametric law and a relative noise."""
    flops = np.repeat(BUDGETS, sizes)
    factors = np.tile(np.geomspace(0.2, 5, sizes), len(BUDGETS))
    parameters = factors * np.sqrt(flops / 120)
    tokens = flops / (6 * parameters)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(len(flops)))
    return Points(parameters, tokens, np.asarray(parametric_loss(constants, parameters, tokens)) * scatter, flops)
