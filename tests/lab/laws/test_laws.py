"""All laws together: predictions with intervals, values as JSON, and remarks on fits that a reader must know."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scaling_points import BUDGETS, CONSTANTS, made_points

from qkv.lab.laws.chinchilla import optimum, parametric_loss
from qkv.lab.laws.laws import Laws, fit_laws


@pytest.fixture(scope="module")
def laws() -> Laws:
    return fit_laws(made_points(0.002), BUDGETS, bootstrap=40)


def test_a_larger_run_is_predicted_within_its_interval(laws: Laws) -> None:
    estimate, truth = laws.predict(1e9, 2e10), float(parametric_loss(CONSTANTS, 1e9, 2e10))
    assert estimate.low < truth < estimate.high and estimate.value == pytest.approx(truth, rel=0.02)


def test_the_optimum_of_a_budget_has_intervals(laws: Laws) -> None:
    best = laws.optimum(1e20)
    parameters, tokens = optimum(CONSTANTS, 1e20)
    assert best.parameters.low < parameters < best.parameters.high
    assert best.tokens.low < tokens < best.tokens.high
    assert best.loss.low <= best.loss.value <= best.loss.high
    a, b = laws.exponents()
    assert a.value + b.value == pytest.approx(1) and a.low < a.value < a.high


def test_the_laws_are_json() -> None:
    values = json.loads(json.dumps(fit_laws(made_points(), bootstrap=0).to_dict()))
    assert values["parametric"]["alpha"]["value"] == pytest.approx(CONSTANTS[3], rel=1e-3)
    assert values["parametric"]["alpha"]["low"] == values["parametric"]["alpha"]["high"]
    assert values["points"] == 35 and values["remarks"] == []
    assert values["flops_per_parameter_and_token"] == pytest.approx(6)


def test_a_bound_is_said_in_a_sentence() -> None:
    without_floor = np.array([1e-9, *CONSTANTS[1:]])
    remarks = fit_laws(made_points(constants=without_floor), bootstrap=0).remarks()
    assert any(remark.startswith("E ended at a bound of its range") for remark in remarks)


def test_a_frontier_beyond_the_sizes_is_said() -> None:
    points = made_points()
    small = points[points.parameters < 0.5 * np.sqrt(points.flops / 120)]
    (remark,) = [remark for remark in fit_laws(small, bootstrap=0).remarks() if "extrapolation" in remark]
    assert remark.startswith("For the largest budget, 1e+19 FLOPs") and "larger than the largest" in remark
