"""Speeds before and after pruning: both do the same work, and a change of the machine's pace between rounds cancels."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import qkv
from qkv.experiments.prune import speed


def test_both_generate_as_many_tokens(trained: Path) -> None:
    run = qkv.load(trained, "cpu")
    found = speed.speeds(run, run)
    assert found.keys() == {"before", "after"} and 0.2 < found["after"] / found["before"] < 5


def test_a_slow_second_half_does_not_change_the_ratio(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, pace = qkv.load(trained, "cpu"), itertools.chain([1, 1], [100, 150] * 4, [10, 15] * 3)
    monkeypatch.setattr(speed, "ROUNDS", 7)
    monkeypatch.setattr(speed, "_rate", lambda work: float(next(pace)))
    assert speed.speeds(run, run) == {"before": 100.0, "after": 150.0}
