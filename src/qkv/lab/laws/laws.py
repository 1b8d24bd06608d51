"""`Laws`: all scaling laws fitted to a set of points, their predictions with intervals, and remarks on the fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .chinchilla import NAMES, SMALLEST_SHARE, ParametricFit, fit_parametric, optimum, parametric_loss
from .isoflop import IsoFlop, fit_isoflop
from .kaplan import ComputeLaw, KaplanFit, fit_compute, fit_kaplan
from .points import Points, Values

LEVEL = 0.9
SYMBOLS = {"E": "E", "A": "A", "B": "B", "alpha": "α", "beta": "β"}


@dataclass(frozen=True)
class Estimate:
    """A value with the bounds of its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Optimum:
    """The best use of a budget by the parametric loss: parameters, tokens and the loss to expect."""

    flops: float
    parameters: Estimate
    tokens: Estimate
    loss: Estimate


@dataclass(frozen=True)
class Laws:
    """Laws fitted to `points`. `isoflop` is None without a budget of three sizes, `compute` without a frontier."""

    points: Points
    parametric: ParametricFit
    kaplan: KaplanFit
    compute: ComputeLaw | None
    isoflop: IsoFlop | None

    @property
    def samples(self) -> Values:
        """The constants of each refit (n, 5), or of the fit alone without bootstrap."""
        samples = self.parametric.samples
        return self.parametric.constants[None] if samples is None or not len(samples) else samples

    @cached_property
    def noise(self) -> Values:
        """Residuals of the log-losses, for the prediction intervals."""
        predicted = self.parametric.loss(self.points.parameters, self.points.tokens)
        return np.asarray(np.log(self.points.loss) - np.log(predicted))

    def constants(self) -> dict[str, Estimate]:
        """E, A, B, α and β with their intervals."""
        columns = self.samples.T
        return {
            name: _estimate(value, column)
            for name, value, column in zip(NAMES, self.parametric.constants.tolist(), columns, strict=True)
        }

    def exponents(self) -> tuple[Estimate, Estimate]:
        """a and b of N_opt ∝ C^a and D_opt ∝ C^b by the parametric loss: β / (α + β) and α / (α + β)."""
        alpha, beta = self.samples[:, 3], self.samples[:, 4]
        own = self.parametric.beta / (self.parametric.alpha + self.parametric.beta)
        return _estimate(own, beta / (alpha + beta)), _estimate(1 - own, alpha / (alpha + beta))

    def predict(self, parameters: float, tokens: float) -> Estimate:
        """The loss of a run of this size, with the interval for a new run: of the law and of the runs' scatter around it."""
        samples = np.log(parametric_loss(self.samples, parameters, tokens))
        generator = np.random.default_rng(0)
        scatter = generator.choice(self.noise, size=(len(samples), 8))
        losses = np.exp(np.asarray(samples)[:, None] + scatter)
        return _estimate(float(self.parametric.loss(parameters, tokens)), losses.ravel())

    def optimum(self, flops: float) -> Optimum:
        """The compute-optimal size and number of tokens for a budget, and the predicted loss."""
        k = self.points.flops_per_parameter
        best = self.parametric.optimum(flops, k)
        samples = optimum(self.samples, flops, k)
        sizes, tokens = (_estimate(float(v), np.asarray(s)) for v, s in zip(best, samples, strict=True))
        losses = np.asarray(parametric_loss(self.samples, *samples))
        return Optimum(flops, sizes, tokens, _estimate(float(self.parametric.loss(*best)), losses))

    def remarks(self) -> list[str]:
        """Sentences on what a reader of these fits must know."""
        remarks = [_at_bound(name) for name in self.parametric.at_bounds]
        remarks += [
            f"{name} of Kaplan's law ended at a bound of its range: the points do not determine it."
            for name in self.kaplan.at_bounds
        ]
        remarks += self._beyond_the_sizes()
        if self.isoflop is not None:
            remarks += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in self.isoflop.left_out]
        return remarks

    def _beyond_the_sizes(self) -> list[str]:
        """A sentence if the best size for the largest budget is none between the smallest and the largest of the points."""
        sizes, flops = self.points.parameters, float(self.points.flops.max())
        best = self.optimum(flops).parameters.value
        if sizes.min() <= best <= sizes.max():
            return []
        end = "smaller than the smallest" if best < sizes.min() else "larger than the largest"
        return [
            f"For the largest budget, {flops:.3g} FLOPs, the parametric loss has its best size at {best:.3g} parameters, "
            f"{end} of the points ({sizes.min():.3g} to {sizes.max():.3g}): the frontier is an extrapolation."
        ]

    def to_dict(self) -> dict[str, Any]:
        """The fits as JSON values."""
        a, b = self.exponents()
        return {
            "points": len(self.points),
            "interval": LEVEL,
            "flops_per_parameter_and_token": self.points.flops_per_parameter,
            "parametric": {name: asdict(estimate) for name, estimate in self.constants().items()},
            "frontier": {"a": asdict(a), "b": asdict(b)},
            "isoflop": None if self.isoflop is None else asdict(self.isoflop),
            "kaplan": asdict(self.kaplan),
            "compute": None if self.compute is None else asdict(self.compute),
            "remarks": self.remarks(),
        }


def fit_laws(points: Points, budgets: Sequence[float] | None = None, bootstrap: int = 200, seed: int = 0) -> Laws:
    """Fit all laws. `budgets` are the budgets of the IsoFLOP profiles. Raises ValueError for too few points."""
    return Laws(
        points,
        fit_parametric(points, bootstrap, seed),
        fit_kaplan(points),
        fit_compute(points),
        fit_isoflop(points, budgets, bootstrap, seed),
    )


def _estimate(value: float, samples: Values) -> Estimate:
    low, high = np.percentile(samples, [50 * (1 - LEVEL), 50 * (1 + LEVEL)]).tolist()
    return Estimate(value, min(low, value), max(high, value))


def _at_bound(name: str) -> str:
    if name == "E":
        return (
            f"E ended at a bound of its range ({SMALLEST_SHARE:g} of the lowest loss, or all of it): the points do not "
            "determine the irreducible loss; train over a wider range of sizes and tokens."
        )
    of = "parameters" if name in ("A", "alpha") else "tokens"
    return (
        f"{SYMBOLS[name]} ended at a bound of its range: the points do not determine how the loss depends on {of}; train "
        f"over a wider range of {of}."
    )
