"""Chinchilla's parametric loss L(N, D) = E + A / N^α + B / D^β, fitted to the points of training runs.

Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", §3.3: the constants minimize the Huber loss
(δ = 10⁻³) between predicted and measured log-loss, by L-BFGS from a grid of starts. Besiroglu et al. 2024, "Chinchilla
Scaling: A replication attempt", fit the published points again, with the sum of the Huber losses rather than their mean, to
which L-BFGS converges; so does this module. Intervals are percentiles over refits of resampled points (bootstrap).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.optional_libraries import need
from .points import Points, Values

NAMES = ("E", "A", "B", "alpha", "beta")
HUBER = 1e-3
LEAST_POINTS, LEAST_DISTINCT = 6, 3
EXPONENTS = (0.01, 2.5)
CONSTANTS = (-5.0, 70.0)  # log A and log B
SMALLEST_SHARE = 1e-3  # of E in the lowest loss
SCALE = 1e3  # of the objective, which L-BFGS would otherwise take for flat

_GRID = (np.arange(0.0, 26.0, 5.0), np.arange(0.0, 26.0, 5.0), np.arange(-1.0, 1.5, 0.5))  # log A, log B, log E
_EXPONENTS = np.arange(0.0, 2.5, 0.5)


@dataclass(frozen=True)
class ParametricFit:
    """The constants of L(N, D) = E + A / N^α + B / D^β.

    objective: the sum of the Huber losses.
    at_bounds: names of the constants that ended at a bound of their range.
    samples:   the constants of each refit (n, 5), in the order of `NAMES`; without rows if there was no bootstrap.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    objective: float
    at_bounds: tuple[str, ...] = ()
    samples: Values | None = None

    @property
    def constants(self) -> Values:
        return np.array([self.E, self.A, self.B, self.alpha, self.beta])

    def loss(self, parameters: float | Values, tokens: float | Values) -> float | Values:
        """The predicted loss of a model of N parameters after D tokens."""
        return parametric_loss(self.constants, parameters, tokens)

    def optimum(self, flops: float | Values, per_parameter: float = 6.0) -> tuple[float | Values, float | Values]:
        """The compute-optimal (parameters, tokens) of a budget, see `optimum`."""
        return optimum(self.constants, flops, per_parameter)


def parametric_loss(constants: Values, parameters: float | Values, tokens: float | Values) -> float | Values:
    """L(N, D) = E + A / N^α + B / D^β. `constants` (…, 5) may hold several sets of them."""
    E, A, B, alpha, beta = np.moveaxis(constants, -1, 0)
    result: float | Values = E + A / np.power(parameters, alpha) + B / np.power(tokens, beta)
    return result


def optimum(
    constants: Values, flops: float | Values, per_parameter: float = 6.0
) -> tuple[float | Values, float | Values]:
    """The parameters and tokens of least predicted loss with C = k N D FLOPs, k = `per_parameter` (Hoffmann et al. 2022,
    eq. 4):

        N = G (C/k)^(β / (α + β)),   D = G⁻¹ (C/k)^(α / (α + β)),   G = (α A / (β B))^(1 / (α + β))

    `constants` (…, 5) may hold several sets of them.
    """
    _, A, B, alpha, beta = np.moveaxis(constants, -1, 0)
    product = np.asarray(flops) / per_parameter
    G = np.power(alpha * A / (beta * B), 1 / (alpha + beta))
    parameters = G * np.power(product, beta / (alpha + beta))
    return parameters, product / parameters


def fit_parametric(points: Points, bootstrap: int = 0, seed: int = 0) -> ParametricFit:
    """Fit the parametric loss, and again to `bootstrap` resamples of the points.

    Raises ValueError for too few points.
    """
    check(points)
    candidates = sorted((_minimize(points, start) for start in _starts(points)), key=lambda result: result[0])
    objective, constants = candidates[0]
    other = next((c for _, c in candidates if np.abs(c - constants).max() > 0.05), constants)  # of another valley
    samples = _resampled(points, (constants, other), bootstrap, seed)
    E, A, B, alpha, beta = _natural(constants).tolist()
    return ParametricFit(E, A, B, alpha, beta, objective, _at_bounds(points, constants), samples)


def check(points: Points) -> None:
    """Raise ValueError if there are too few points, or too few sizes or token counts among them, for five constants."""
    sizes, tokens = (len(_distinct(values)) for values in (points.parameters, points.tokens))
    if len(points) < LEAST_POINTS or min(sizes, tokens) < LEAST_DISTINCT:
        raise ValueError(
            f"a fit of E, A, B, α and β needs at least {LEAST_POINTS} points with {LEAST_DISTINCT} different numbers of "
            f"parameters and {LEAST_DISTINCT} of tokens; there are {len(points)} points with {sizes} and {tokens}"
        )


def _distinct(values: Values) -> Values:
    """Values that differ by more than 1 %."""
    ordered = np.sort(np.log(values))
    return ordered[np.diff(ordered, prepend=-np.inf) > 0.01]


def _starts(points: Points) -> list[Values]:
    """For each pair of exponents, the start of Hoffmann et al.'s grid (§D.2) with the least objective."""
    logs, starts = _logs(points), []
    for alpha, beta in itertools.product(_EXPONENTS, _EXPONENTS):
        grid = np.array([[a, b, e, alpha, beta] for a, b, e in itertools.product(*_GRID)])
        residuals, _ = _residuals(grid.T[..., None], logs)
        starts.append(grid[_huber(residuals).sum(axis=-1).argmin()])
    return starts


def _logs(points: Points) -> Values:
    """log N, log D and log L of each point (3, P)."""
    return np.log([points.parameters, points.tokens, points.loss])


def _residuals(x: Values, logs: Values) -> tuple[Values, Values]:
    """Predicted minus measured log-loss, and the share of each term of L(N, D) in it (3, …): of N, of D and of E.

    `x` is (log A, log B, log E, α, β), or arrays of these that broadcast with the points.
    """
    a, b, e, alpha, beta = x
    n, d, target = logs
    terms = np.stack(np.broadcast_arrays(a - alpha * n, b - beta * d, e))
    largest = terms.max(axis=0)
    shares = np.exp(terms - largest)
    total = shares.sum(axis=0)
    return largest + np.log(total) - target, shares / total


def _huber(residuals: Values) -> Values:
    size = np.abs(residuals)
    return np.where(size <= HUBER, residuals**2 / 2, HUBER * (size - HUBER / 2))


def _objective(x: Values, logs: Values) -> tuple[float, Values]:
    """The sum of the Huber losses at x = (log A, log B, log E, α, β), and its gradient."""
    residuals, shares = _residuals(x, logs)
    by_term = np.clip(residuals, -HUBER, HUBER) * shares
    by_exponents = [-by_term[0] @ logs[0], -by_term[1] @ logs[1]]
    value = float(_huber(residuals).sum())
    return SCALE * value, SCALE * np.array([*by_term.sum(axis=1), *by_exponents])


def _bounds(points: Points) -> list[tuple[float, float]]:
    highest = float(np.log(points.loss.min()))
    return [CONSTANTS, CONSTANTS, (highest + np.log(SMALLEST_SHARE), highest), EXPONENTS, EXPONENTS]


def _minimize(points: Points, start: Values) -> tuple[float, Values]:
    need("fitting a scaling law", "scipy")
    from scipy.optimize import minimize

    low, high = np.array(_bounds(points)).T
    result = minimize(
        _objective,
        np.clip(start, low, high),
        args=(_logs(points),),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-8},
    )
    return float(result.fun) / SCALE, result.x


def _resampled(points: Points, starts: Sequence[Values], count: int, seed: int) -> Values:
    """The constants of fits to resampled points (n, 5). Resamples with too few sizes are drawn again."""
    generator, samples = np.random.default_rng(seed), []
    for _ in range(count):
        resample = points[generator.integers(len(points), size=len(points))]
        for _ in range(100):
            if min(len(_distinct(resample.parameters)), len(_distinct(resample.tokens))) >= LEAST_DISTINCT:
                break
            resample = points[generator.integers(len(points), size=len(points))]
        samples.append(_natural(min((_minimize(resample, start) for start in starts), key=lambda r: r[0])[1]))
    return np.array(samples).reshape(-1, len(NAMES))


def _natural(x: Values) -> Values:
    """(log A, log B, log E, α, β) as (E, A, B, α, β)."""
    a, b, e, alpha, beta = x
    return np.array([np.exp(e), np.exp(a), np.exp(b), alpha, beta])


def _at_bounds(points: Points, x: Values) -> tuple[str, ...]:
    names = ("A", "B", "E", "alpha", "beta")
    ends = zip(names, x, _bounds(points), strict=True)
    return tuple(name for name, value, (low, high) in ends if min(value - low, high - value) < 1e-4 * (high - low))
