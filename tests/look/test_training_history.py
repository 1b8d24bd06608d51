"""The lines of `metrics.jsonl` as tables."""

from __future__ import annotations

from qkv.look.training_history import History

LINES = [
    {"type": "event", "step": 0, "event": "started"},
    {"type": "train", "step": 10, "loss": 2.0, "mfu": None},
    {"type": "train", "step": 20, "loss": float("nan"), "lr": 0.1},
    {"type": "train", "step": 30, "loss": 1.0, "mfu": 0.5, "best": True},
    {"type": "eval", "step": 30, "nll": 1.5},
    {"type": "event", "step": 20, "event": "bad step"},
    "not a line",
    {"loss": 3.0},
]


def test_series_hold_finite_numbers_only():
    history = History.of(LINES)
    assert history.series("train", "loss") == [(10.0, 2.0), (30.0, 1.0)]
    assert history.series("train", "mfu") == [(30.0, 0.5)]
    assert history.series("eval", "loss") == []
    assert history.last("eval", "nll") == 1.5
    assert history.last("final", "nll") is None
    assert history.median("train", "loss") == 1.5 and history.median("train", "absent") is None


def test_names_match_numbers():
    history = History.of(LINES)
    assert history.keys("train") == ["loss", "lr", "mfu"]
    assert history.keys("final") == []


def test_events_are_counted():
    assert History.of(LINES).count("bad step") == 1
    assert History().count("bad step") == 0
