"""The report: charts, tables, remarks and warnings, and nothing unescaped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scaling_points import BUDGETS, CONSTANTS, made_points

from qkv.lab.laws.laws import Estimate, fit_laws
from qkv.lab.scaling.page import HeldOut, PointsSource, write_page
from qkv.lab.scaling.runs import Outcome


def test_the_page_shows_charts_tables_and_budgets(tmp_path: Path) -> None:
    laws = fit_laws(made_points(0.001), BUDGETS, bootstrap=4)
    held_out = [HeldOut("1e19-big", 10**9, 10**9, 6e18, 2.5, Estimate(2.55, 2.5, 2.6))]
    path = write_page(laws, tmp_path / "laws.html", PointsSource("<b>mine</b>"), held_out, budgets=[7e23])
    page = path.read_text()
    assert page.count("<svg") == 3 and "&lt;b&gt;mine" in page and "<b>mine" not in page
    assert "IsoFLOP profiles" in page and "7e23" in page and "+2.00%" in page and "Remarks" not in page
    assert "src=" not in page and "://" not in page


def test_bounds_are_a_warning_and_diverged_runs_a_row(tmp_path: Path) -> None:
    laws = fit_laws(made_points(constants=np.array([1e-9, *CONSTANTS[1:]])), bootstrap=0)
    source = PointsSource("laws", runs=[("a", 1e-3, 10, Outcome(diverged="NaN")), ("b", 1e-3, 10, Outcome(2.0, 3.0))])
    page = write_page(laws, tmp_path / "laws.html", source).read_text()
    assert "ended at a bound" in page and "Remarks" in page
    assert "diverged" in page and "2.0000" in page
