"""IsoFLOP profiles: at each budget of FLOPs, a parabola of the loss in log N, and the best size as a power of the budget.

Hoffmann et al. 2022, §3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .points import Points, Values

LEAST_SIZES = 3
SAME_BUDGET = 1.08  # the largest ratio of neighbors in one budget


@dataclass(frozen=True)
class Parabola:
    """loss = a x² + b x + c with x = log N, at one budget.

    parameters, tokens, loss: at the minimum.
    inside:  whether the minimum lies between the smallest and the largest size.
    """

    flops: float
    coefficients: tuple[float, float, float]
    sizes: tuple[float, float]
    parameters: float
    tokens: float
    loss: float
    inside: bool

    def at(self, parameters: Values) -> Values:
        return np.asarray(np.polyval(self.coefficients, np.log(parameters)))


@dataclass(frozen=True)
class IsoFlop:
    """The parabolas, and N_opt ∝ C^a and D_opt ∝ C^b of their minima; None for fewer than two minima inside.

    left_out: a sentence for each budget without a minimum.
    a_interval: of 90 %, over refits with resampled residuals; None without them.
    """

    parabolas: tuple[Parabola, ...]
    a: float | None
    b: float | None
    left_out: tuple[str, ...] = ()
    a_interval: tuple[float, float] | None = None


def fit_isoflop(
    points: Points, budgets: Sequence[float] | None = None, bootstrap: int = 0, seed: int = 0
) -> IsoFlop | None:
    """Fit a parabola for each budget with three or more sizes; None if there is none.

    budgets: assign each point to the nearest of these; by default, points of nearly equal FLOPs form a budget.
    """
    groups = list(_groups(points, budgets))
    parabolas, left_out = [], []
    for group in groups:
        parabola = _parabola(group)
        if parabola is None:
            left_out.append(f"at {_budget(group):.3g} FLOPs the loss has no minimum over the sizes")
            continue
        parabolas.append(parabola)
        if not parabola.inside:
            end = "below the smallest" if parabola.parameters < parabola.sizes[0] else "above the largest"
            left_out.append(f"at {_budget(group):.3g} FLOPs the best size lies {end} that was trained")
    if not groups:
        return None
    a = _exponent(parabolas)
    interval = None if a is None or not bootstrap else _interval(groups, bootstrap, seed)
    return IsoFlop(tuple(parabolas), a, None if a is None else 1 - a, tuple(left_out), interval)


def _groups(points: Points, budgets: Sequence[float] | None) -> list[Points]:
    ordered = points[np.argsort(points.flops)]
    logs = np.log(ordered.flops)
    if budgets is None:
        labels = np.cumsum(np.diff(logs, prepend=logs[:1]) > np.log(SAME_BUDGET))
    else:
        labels = np.abs(logs[:, None] - np.log(budgets)).argmin(axis=1)
    groups = [ordered[labels == label] for label in np.unique(labels)]
    return [group for group in groups if len(np.unique(group.parameters)) >= LEAST_SIZES]


def _budget(group: Points) -> float:
    return float(np.exp(np.log(group.flops).mean()))


def _parabola(group: Points) -> Parabola | None:
    """None if the loss curves downwards."""
    x = np.log(group.parameters)
    a, b, c = np.polyfit(x, group.loss, 2).tolist()
    if a <= 0:
        return None
    best, flops = float(-b / (2 * a)), _budget(group)
    low, high = float(x.min()), float(x.max())
    parameters = float(np.exp(np.clip(best, low - 5, high + 5)))
    tokens = flops / (group.flops_per_parameter * parameters)
    return Parabola(
        flops,
        (a, b, c),
        (float(np.exp(low)), float(np.exp(high))),
        parameters,
        tokens,
        float(np.polyval((a, b, c), best)),
        low <= best <= high,
    )


def _exponent(parabolas: Sequence[Parabola]) -> float | None:
    """a of N_opt ∝ C^a by least squares of logarithms; None for fewer than two minima inside."""
    inside = [p for p in parabolas if p.inside]
    if len(inside) < 2:
        return None
    logs = np.log([[p.flops, p.parameters] for p in inside])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _interval(groups: Sequence[Points], count: int, seed: int) -> tuple[float, float] | None:
    """The 5th and 95th percentile of a over refits, in which residuals from the parabolas are drawn anew."""
    generator, exponents = np.random.default_rng(seed), []
    fits = [(group, parabola) for group in groups if (parabola := _parabola(group)) is not None]
    residuals = np.concatenate([_residuals(group, parabola) for group, parabola in fits])
    for _ in range(count):
        refits = []
        for group, parabola in fits:
            loss = parabola.at(group.parameters) + generator.choice(residuals, size=len(group))
            refits.append(_parabola(Points(group.parameters, group.tokens, loss, group.flops)))
        exponent = _exponent([refit for refit in refits if refit is not None])
        if exponent is not None:
            exponents.append(exponent)
    if len(exponents) < count / 2:
        return None
    low, high = np.percentile(exponents, [5, 95]).tolist()
    return low, high


def _residuals(group: Points, parabola: Parabola) -> Values:
    """Residuals, enlarged for the three degrees of freedom that the parabola takes; zero if it has no more."""
    free = len(group) - 3
    residuals = group.loss - parabola.at(group.parameters)
    return residuals * np.sqrt(len(group) / free) if free > 0 else np.zeros_like(residuals)
