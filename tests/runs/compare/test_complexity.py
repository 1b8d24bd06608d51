"""Speed, sequential operations and the reach of gradients, measured beside their formulas."""

from __future__ import annotations

import qkv
from qkv.runs.compare.complexity import Reach, SequentialSteps, Speed, formula
from qkv.runs.inference.run import Run


def test_speed_stands_beside_its_formula(run: Run) -> None:
    measure = Speed(lengths=(4, 8), tokens=64)
    curve = measure(run)
    assert [x for x, _ in curve] == [4.0, 8.0] and all(y > 0 for _, y in curve)
    assert "grows as n^" in measure.remark(run, curve) and "T_y(d_a d_s + T_x(d_a + d_h))" in measure.remark(run, curve)
    assert "S² d" in formula(qkv.preset("transformer"))


def test_steps_in_a_row(run: Run) -> None:
    measure = SequentialSteps(lengths=(10, 20))
    assert measure(run) == [(10.0, 20.0), (20.0, 40.0)]
    assert "that to a target token 1 step" in measure.remark(run, measure(run))


def test_gradients_of_a_run(run: Run) -> None:
    curve = Reach(length=6, rows=4)(run)
    assert [x for x, _ in curve] == [0, 1, 2, 3, 4, 5] and curve[0][1] == 1.0
    assert Reach(length=500)(run) == [] and "has 500 tokens" in Reach(length=500).summary({"a": []})[0]
