"""Kaplan's power laws of the loss in parameters, tokens and FLOPs.

Kaplan et al. 2020, "Scaling Laws for Neural Language Models": the loss of a model of N parameters trained on D tokens is
(eq. 1.5)

    L(N, D) = [(N_c / N)^(α_N / α_D) + D_c / D]^α_D

with the limits L(N) = (N_c / N)^α_N of unlimited data and L(D) = (D_c / D)^α_D of unlimited size. The loss of the best
use of C FLOPs is L(C) = (C_c / C)^α_C. The paper counts parameters without embeddings; here they are what the points hold.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ...core.optional_libraries import need
from .chinchilla import HUBER
from .points import Points, Values

LEAST_FRONTIER = 3  # points for a line
EXPONENTS = (0.005, 1.5)
CONSTANTS = (-20.0, 120.0)  # log N_c and log D_c


@dataclass(frozen=True)
class KaplanFit:
    """The constants of Kaplan's laws. `at_bounds` names the constants that ended at a bound of their range."""

    N_c: float
    alpha_N: float
    D_c: float
    alpha_D: float
    at_bounds: tuple[str, ...] = ()

    def loss(self, parameters: float | Values, tokens: float | Values) -> float | Values:
        """The predicted loss of a model of N parameters after D tokens."""
        first = np.power(self.N_c / np.asarray(parameters), self.alpha_N / self.alpha_D)
        result: float | Values = np.power(first + self.D_c / np.asarray(tokens), self.alpha_D)
        return result


@dataclass(frozen=True)
class ComputeLaw:
    """L(C) = (C_c / C)^α_C, fitted to the `points` on the frontier: points with a lower loss than any with less
    compute."""

    C_c: float
    alpha_C: float
    points: int

    def loss(self, flops: float | Values) -> float | Values:
        result: float | Values = np.power(self.C_c / np.asarray(flops), self.alpha_C)
        return result


def fit_kaplan(points: Points) -> KaplanFit:
    """Fit L(N, D) by the Huber loss (δ = 10⁻³) of log-losses, from several starts."""
    need("fitting a scaling law", "scipy")
    from scipy.optimize import least_squares

    n, d, target = np.log(points.parameters), np.log(points.tokens), np.log(points.loss)

    def residuals(x: Values) -> Values:
        log_N_c, alpha_N, log_D_c, alpha_D = x
        predicted = alpha_D * np.logaddexp(alpha_N / alpha_D * (log_N_c - n), log_D_c - d)
        return np.asarray(predicted - target)

    bounds = np.array([CONSTANTS, EXPONENTS, CONSTANTS, EXPONENTS])
    starts = itertools.product((0.05, 0.3), (0.05, 0.3))
    results = [
        least_squares(
            residuals,
            np.clip([n.mean() + target.mean() / a, a, d.mean() + target.mean() / b, b], *bounds.T),
            bounds=tuple(bounds.T),
            loss="huber",
            f_scale=HUBER,
            x_scale=(1.0, 0.1, 1.0, 0.1),
            max_nfev=500,
        )
        for a, b in starts
    ]
    best = min(results, key=lambda result: result.cost).x
    names = ("N_c", "alpha_N", "D_c", "alpha_D")
    at_bounds = tuple(
        name
        for name, value, (low, high) in zip(names, best, bounds, strict=True)
        if min(value - low, high - value) < 1e-4 * (high - low)
    )
    return KaplanFit(float(np.exp(best[0])), float(best[1]), float(np.exp(best[2])), float(best[3]), at_bounds)


def fit_compute(points: Points) -> ComputeLaw | None:
    """Fit L(C) by least squares of log-losses on the frontier; None if it has fewer than three points."""
    best = frontier(points)
    if len(best) < LEAST_FRONTIER:
        return None
    slope, intercept = np.polyfit(np.log(best.flops), np.log(best.loss), 1)
    return ComputeLaw(float(np.exp(-intercept / slope)), float(-slope), len(best)) if slope < 0 else None


def frontier(points: Points) -> Points:
    """The points of lower loss than any with less or equal compute, by ascending compute."""
    ordered = points[np.lexsort((points.loss, points.flops))]
    before = np.minimum.accumulate(np.concatenate([[np.inf], ordered.loss[:-1]]))
    return ordered[ordered.loss < before]
