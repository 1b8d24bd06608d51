"""The page of a tuning: the best settings as a command, importance, and trials that failed."""

from __future__ import annotations

from pathlib import Path

from tunings import SPACE

from qkv.lab.tune.page import write_page
from qkv.lab.tune.summary import TrialRow, TuningSummary
from qkv.lab.tune.trial import TrialResult
from qkv.lab.tune.tuning import Tuning

LR = "training.optimizer.lr"


def test_the_page_tells_the_best_trial_and_what_failed(pairs: list[str], tmp_path: Path) -> None:
    tuning = Tuning.load("localise", pairs, space=SPACE, trials=3)
    rows = (
        TrialRow(0, {LR: "1e-3"}, TrialResult("finished", 2.0, 10, points=[(5, 2.5), (10, 2.0)])),
        TrialRow(1, {LR: "3e-3"}, TrialResult("finished", 1.25, 10, points=[(5, 2.0), (10, 1.25)])),
        TrialRow(2, {LR: "1e-2"}, TrialResult("failed", message="too <wide>")),
    )
    summary = TuningSummary("made", "loss", "min", rows, {LR: 0.75}, 1, {"bleu": 12.5}, f"qkv train localise {LR}=3e-3")
    page = write_page(tuning, summary, tmp_path).read_text()
    assert f"qkv train localise {LR}=3e-3" in page and "trial 1, validation" in page
    assert "75%" in page and "logarithmic" in page and "12.5" in page
    assert "1 trial could not be trained" in page and "trial 2: too &lt;wide&gt;" in page
    none = TuningSummary("made", "loss", "min", rows[2:], {}, None, {}, "")
    assert "No trial finished." in write_page(tuning, none, tmp_path).read_text()
