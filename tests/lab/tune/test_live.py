"""The live table of a tuning: what became of each trial, and the best one."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from qkv.lab.tune.live import TuningProgress
from qkv.lab.tune.summary import TrialRow
from qkv.lab.tune.trial import TrialResult


def test_trials_are_shown_with_their_outcome() -> None:
    said = StringIO()
    progress = TuningProgress("loss", "min", 6, Console(file=said, width=120))
    progress.begin(4, {"model.d_model": "64"})
    for number, result in enumerate(
        (
            TrialResult("finished", 2.0, 10),
            TrialResult("finished", 1.5, 10),
            TrialResult("pruned", 3.0, 1400),
            TrialResult("failed", message="too wide"),
        )
    ):
        progress.done(TrialRow(number, {"training.optimizer.lr": "1e-3"}, result))
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("1/6 trial 0: lr=1e-3: Loss 2; about")
    assert "trial 2: lr=1e-3: pruned after step 1,400, Loss 3;" in lines[2]
    assert "not possible: too wide" in lines[3]
    Console(file=said, width=120).print(progress.table())
    table = said.getvalue().splitlines()[4:]
    assert next(line for line in table if "(best)" in line).split()[:2] == ["1", "lr=1e-3"]
    assert any("d_model=64" in line and line.rstrip().endswith("in training") for line in table)
    assert any("4 of 6 trials; about " in line for line in table)
