"""The best evaluation so far: later equals, the least gain that counts, and NaN."""

from __future__ import annotations

import math

import pytest

from qkv.training.early_stopping import BestEvaluation


@pytest.mark.parametrize(("mode", "values"), [("min", [3.0, 2.0, 2.5, 2.0, 1.95]), ("max", [1.0, 2.0, 1.5, 2.0, 2.05])])
def test_equals_replace_the_best_and_count_as_stale(mode: str, values: list[float]) -> None:
    best = BestEvaluation()
    taken = [best.offer(step, value, {"m": value}, mode, 0.1) for step, value in enumerate(values, 1)]
    assert taken == [True, True, False, True, False]
    assert (best.step, best.value, best.stale, best.metrics) == (4, 2.0, 3, {"m": 2.0})


def test_nan_is_never_the_best() -> None:
    best = BestEvaluation()
    assert not best.offer(1, math.nan, {}, "min", 0.0) and best.stale == 1
    assert best.offer(2, 7.0, {}, "min", 0.0) and best.stale == 0
    assert not best.offer(3, math.nan, {}, "min", 0.0) and best.step == 2
