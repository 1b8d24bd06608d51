"""`python -m bench recording`: both ways generate, and the table has their ratio."""

from __future__ import annotations

from bench.recording import QUICK, measured, table

from bench import machine


def test_both_are_measured_in_turns() -> None:
    row = measured(QUICK[0], 2)
    assert len(row["without"]) == len(row["with"]) == 2 and min(*row["without"], *row["with"]) > 0


def test_the_ratio_matches_turns() -> None:
    row = {"model": "small", "without": [100.0, 200.0, 400.0], "with": [50.0, 50.0, 300.0]}
    text = table({**machine.stamp(), "threads": 2, "load_before": 0.0, "rows": [row]})
    assert "| small | 200 | 50 | 0.50 |" in text
