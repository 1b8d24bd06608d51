"""Speeds before and after pruning: both do the same work, and a change of the machine's pace between rounds cancels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import qkv
from qkv.lab.prune import speed


def test_both_generate_as_many_tokens(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, counts = qkv.load(trained, "cpu"), []

    def counted(work: Callable[[], int]) -> float:
        counts.append(work())
        return 1.0

    monkeypatch.setattr(speed, "_rate", counted)
    speed.speeds(run, run)
    assert set(counts) == {speed.TEXTS * speed.NEW_TOKENS}


def test_a_slow_second_half_does_not_change_the_ratio(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, pace = qkv.load(trained, "cpu"), itertools.chain([1, 1], [100, 150] * 4, [10, 15] * 3)
    monkeypatch.setattr(speed, "ROUNDS", 7)
    monkeypatch.setattr(speed, "_rate", lambda work: float(next(pace)))
    assert speed.speeds(run, run) == {"before": 100.0, "after": 150.0}
