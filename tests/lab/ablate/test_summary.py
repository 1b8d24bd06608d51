"""Differences from the baseline over seeds: paired, with the interval that scipy computes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qkv.lab.ablate.single_run import RunResult
from qkv.lab.ablate.summary import _pairs, interval

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
