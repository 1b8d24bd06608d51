"""Kaplan's laws: known constants are recovered, and the frontier is what no cheaper run beats."""

from __future__ import annotations

import numpy as np
import pytest
from scaling_points import made_points

from qkv.lab.laws.kaplan import KaplanFit, fit_compute, fit_kaplan, frontier
from qkv.lab.laws.points import Points

LAW = KaplanFit(N_c=8.8e13, alpha_N=0.076, D_c=5.4e13, alpha_D=0.095)  # Kaplan et al. 2020, table 5 and §1.2


def test_known_constants_are_recovered() -> None:
    made = made_points()
    losses = np.asarray(LAW.loss(made.parameters, made.tokens))
    fit = fit_kaplan(Points(made.parameters, made.tokens, losses, made.flops))
    assert (fit.alpha_N, fit.alpha_D) == pytest.approx((LAW.alpha_N, LAW.alpha_D), rel=0.01)
    assert np.asarray(fit.loss(made.parameters, made.tokens)) == pytest.approx(losses, rel=1e-4)
    assert fit.at_bounds == ()


def test_the_law_has_kaplans_limits() -> None:
    assert LAW.loss(1e9, 1e30) == pytest.approx((LAW.N_c / 1e9) ** LAW.alpha_N, rel=1e-3)
    assert LAW.loss(1e40, 1e9) == pytest.approx((LAW.D_c / 1e9) ** LAW.alpha_D, rel=1e-3)


def test_the_frontier_falls_with_compute() -> None:
    best = frontier(made_points())
    assert len(best) >= 5 and (np.diff(best.flops) > 0).all() and (np.diff(best.loss) < 0).all()


def test_the_law_of_compute_is_a_line_through_the_frontier() -> None:
    flops = np.geomspace(1e15, 1e20, 6)
    points = Points(np.sqrt(flops), np.sqrt(flops), (3.1e8 / flops * 1e7) ** 0.05, flops)
    law = fit_compute(points)
    assert law is not None and law.alpha_C == pytest.approx(0.05) and law.points == 6
    assert np.asarray(law.loss(flops)) == pytest.approx(points.loss)
    assert fit_compute(points[:2]) is None
