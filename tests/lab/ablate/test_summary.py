"""Differences from the baseline over seeds: paired, with the interval that scipy computes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qkv.lab.ablate.forecast import CostForecast
from qkv.lab.ablate.page import _difference
from qkv.lab.ablate.single_run import RunResult
from qkv.lab.ablate.summary import AblationSummary, Spread, VariantRow, _pairs, interval
from qkv.lab.ablate.tables import as_csv, paired

VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=8).filter(lambda v: max(v) - min(v) > 1e-3)


@given(VALUES)
def test_the_interval_is_students(values: list[float]) -> None:
    result = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values) == pytest.approx((result.low, result.high))


def run(seed_metrics: dict[str, float]) -> RunResult:
    made: Any = RunResult.__new__(RunResult)
    object.__setattr__(made, "metrics", seed_metrics)
    return made  # type: ignore[no-any-return]


def test_differences_are_paired_by_seed() -> None:
    """The seeds differ by ten times more than the variants, and the paired difference is certain."""
    base = {seed: run({"loss": 1.0 + seed}) for seed in (0, 1, 2)}
    variant = {seed: run({"loss": 1.1 + seed + 0.001 * seed}) for seed in (0, 1, 2, 3)}
    pairs = _pairs(variant, base, ["loss", "bleu"])
    assert pairs == {"loss": pytest.approx([0.1, 0.101, 0.102])}
    low, high = interval(pairs["loss"])
    assert 0 < low < 0.101 < high < 0.11


def test_a_loss_has_its_interval_in_the_tables_too() -> None:
    known: dict[str, Any] = {"metrics": {"loss": Spread.of({0: 1.2, 1: 1.3})}, "finished": (0, 1)}
    forecast = CostForecast(10, 1.0, None, None, None)
    row = VariantRow("v", "variant", (), forecast, differences={"loss": 0.1}, intervals={"loss": (0.05, 0.15)}, **known)
    summary = AblationSummary("s", "steps", "b", (0, 1), ("loss",), (row,))
    assert "variant" in paired(summary)[0] and "95 % interval +0.05 to +0.15" in paired(summary)[0]
    assert _difference(row, "loss") == "+0.1 (+0.05 to +0.15)"
    head, line = as_csv(summary).splitlines()
    assert head.endswith("loss_difference,loss_difference_low,loss_difference_high")
    assert line.endswith("0.1,0.05,0.15")
