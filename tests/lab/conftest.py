"""Measuring the speed of a run is cut short in tests: no time is spent on repeating it."""

from __future__ import annotations

import pytest

from qkv.lab.prune import speed


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LEAST": 0.0, "ROUNDS": 2, "TEXTS": 8, "NEW_TOKENS": 6}.items():
        monkeypatch.setattr(speed, name, value)
