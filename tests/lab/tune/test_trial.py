"""One trial: pruned, diverged, or impossible."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from tunings import SPACE, load

from qkv.lab.tune.study import tune
from qkv.lab.tune.tuning import Tuning


def test_poor_trials_are_pruned(pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optuna.pruners.MedianPruner.prune", lambda self, study, trial: trial.number == 1)
    tuning = Tuning.load("localise", pairs, space=SPACE, trials=2)
    done = tune(tuning, tmp_path / "out", device="cpu")
    first, second = done.summary.trials
    assert (first.result.status, second.result.status) == ("finished", "pruned")
    assert second.result.steps <= 2 and done.summary.best == 0
    assert load(tmp_path / "out").trials[1].state == optuna.trial.TrialState.PRUNED


def test_a_divergence_and_impossible_settings_are_trials(pairs: list[str], tmp_path: Path) -> None:
    bad = ["training.max_bad_steps=1", "training.clip_norm=null"]
    space = [
        "training.optimizer={kind: adamw, lr: 1e-3},{kind: sgd, lr: 1e38}",
        "model.d_model=16,24",
        "model.n_heads=2,16",
    ]
    tuning = Tuning.load("localise", [*pairs, *bad], space=space, trials=8, pruner="none", sampler="random")
    done = tune(tuning, tmp_path / "out", device="cpu")
    status = {row.result.status for row in done.summary.trials}
    assert status == {"finished", "diverged", "failed"}
    message = next(row.result.message for row in done.summary.trials if row.result.status == "failed")
    assert "does not divide" in message and "could not be trained" in (tmp_path / "out" / "report.html").read_text()
