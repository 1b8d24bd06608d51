"""IsoFLOP profiles: the minima of parabolas, their power law, and budgets without a minimum."""

from __future__ import annotations

import numpy as np
import pytest
from scaling_points import BUDGETS, CONSTANTS, made_points

from qkv.lab.laws.chinchilla import optimum
from qkv.lab.laws.isoflop import fit_isoflop
from qkv.lab.laws.points import Points


def test_the_minima_are_near_the_optimum_of_the_law() -> None:
    fit = fit_isoflop(made_points(sizes=21))
    assert fit is not None and len(fit.parabolas) == len(BUDGETS) and fit.left_out == ()
    for parabola, flops in zip(fit.parabolas, BUDGETS, strict=True):
        assert parabola.flops == pytest.approx(flops)
        assert parabola.inside and parabola.parameters == pytest.approx(optimum(CONSTANTS, flops)[0], rel=0.5)
        assert 6 * parabola.parameters * parabola.tokens == pytest.approx(flops)
    assert fit.a == pytest.approx(CONSTANTS[4] / (CONSTANTS[3] + CONSTANTS[4]), abs=0.04)
    assert fit.b == pytest.approx(1 - (fit.a or 0))


def test_the_interval_covers_the_exponent_without_noise() -> None:
    noisy = fit_isoflop(made_points(0.003), BUDGETS, bootstrap=60)
    exact = fit_isoflop(made_points(), BUDGETS)
    assert noisy is not None and exact is not None and noisy.a_interval is not None and exact.a is not None
    low, high = noisy.a_interval
    assert low < exact.a < high


def test_a_budget_without_minimum_is_named() -> None:
    points = made_points()
    falling = Points(points.parameters, points.tokens, 5 - 0.1 * np.log(points.parameters) ** 1.5, points.flops)
    fit = fit_isoflop(falling)
    assert fit is not None and fit.a is None and len(fit.left_out) == len(BUDGETS)
    smallest = made_points()[::7]
    assert fit_isoflop(smallest) is None  # one size for each budget


def test_a_minimum_beyond_the_sizes_is_left_out() -> None:
    points = made_points(sizes=21)
    small = points[points.parameters < 0.5 * np.sqrt(points.flops / 120)]
    fit = fit_isoflop(small)
    assert fit is not None and any("above the largest that was trained" in sentence for sentence in fit.left_out)
