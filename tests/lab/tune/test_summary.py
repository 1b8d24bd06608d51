"""Summaries of a tuning: the best trial, and tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from qkv.lab.tune.summary import TrialRow, TuningSummary, best_of, write_tables
from qkv.lab.tune.trial import TrialResult

ROWS = (
    TrialRow(0, {"lr": "1e-3"}, TrialResult("finished", 2.0, 10, 1.5)),
    TrialRow(1, {"lr": "3e-3"}, TrialResult("pruned", 0.5, 4, 0.5)),
    TrialRow(2, {"lr": "1e-2", "wd": "0.\r1"}, TrialResult("finished", 1.0, 10, 1.5)),
    TrialRow(3, {}, TrialResult("finished", None)),
    TrialRow(5, {}, TrialResult("failed", message="no")),
)


@pytest.mark.parametrize(("mode", "number"), [("min", 2), ("max", 0)])
def test_the_best_is_of_the_trials_that_finished_with_a_value(mode: str, number: int) -> None:
    best = best_of(ROWS, mode)
    assert best is not None and best.number == number
    assert best_of(ROWS[1:2], mode) is None and best_of(ROWS[3:], mode) is None


def test_tables_have_a_column_for_every_setting(tmp_path: Path) -> None:
    summary = TuningSummary("t", "loss", "min", ROWS, {"lr": 1.0}, 2, {"bleu": 3.0}, "qkv train x")
    write_tables(summary, tmp_path)
    rows = list(csv.DictReader((tmp_path / "trials.csv").open(newline="")))
    assert list(rows[0]) == ["trial", "status", "loss", "lr", "wd", "steps", "seconds"]
    assert [row["wd"] for row in rows] == ["", "", "0.\r1", "", ""] and rows[1]["status"] == "pruned"
    assert rows[4]["trial"] == "5" and rows[3]["loss"] == ""
    again = json.loads((tmp_path / "trials.json").read_text())
    assert again["best"] == 2 and again["trials"][2]["settings"] == {"lr": "1e-2", "wd": "0.\r1"}
    assert summary.best_row is ROWS[2] and summary.count("finished") == 3
