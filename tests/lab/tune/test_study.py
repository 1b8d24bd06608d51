"""Tuning: trials are trained, pruned, resumed and reported, and Optuna reads the study."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import optuna
import pytest
from tunings import SPACE, load

from qkv.lab.tune import study as module
from qkv.lab.tune.study import tune
from qkv.lab.tune.trial import TrialResult
from qkv.lab.tune.tuning import Tuning
from qkv.runs.recipes.recipe import Recipe


def test_trials_are_trained_and_reported(pairs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    pairs = [*pairs, "training.optimizer.lr=1e-3", "model.n_heads=4"]  # which the space tunes
    tuning = Tuning.load("localise", pairs, space=SPACE, trials=4, pruner="none")
    done = tune(tuning, out, recipe="localise", settings=pairs, device="cpu")
    assert done.report is not None and done.summary.count("finished") == 4
    best = done.summary.best_row
    values = [row.result.value for row in done.summary.trials]
    assert best is not None and best.result.value == min(v for v in values if v is not None)
    study = load(out)
    assert study.best_trial.number == best.number and study.best_value == best.result.value
    assert sorted(study.trials[0].intermediate_values) == [2, 4]
    assert set(done.summary.importance) == {"training.optimizer.lr", "model.n_heads"}
    assert sum(done.summary.importance.values()) == pytest.approx(1)
    words = shlex.split(done.summary.command)
    assert len({word.partition("=")[0] for word in words}) == len(words)
    chosen = Recipe.load(words[2], words[3 : words.index("--out")])
    trained = Recipe.load(out / f"trial-{best.number:03d}")
    assert chosen.training.optimizer == trained.training.optimizer
    assert chosen.spec().decoder == trained.spec().decoder
    page = done.report.read_text()
    assert "Best settings" in page and "Importance" in page and "optuna-dashboard" in page and 'href="study.db"' in page
    assert len((out / "trials.csv").read_text().splitlines()) == 5
    assert json.loads((out / "trials.json").read_text())["best"] == best.number


def test_an_interrupted_tuning_continues_with_its_trials(
    pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trained = tmp_path / "out", []

    def watched(job: Any) -> TrialResult | None:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(job.number)
        return TrialResult("finished", value=float(job.number))

    monkeypatch.setattr(module, "train_trial", watched)
    tuning = Tuning.load("localise", pairs, space=SPACE, trials=4)
    with pytest.raises(KeyboardInterrupt):
        tune(tuning, out)
    assert load(out).trials[2].state == optuna.trial.TrialState.RUNNING
    begun = load(out).trials[2].params
    with pytest.raises(ValueError, match="continue it with --resume"):
        tune(tuning, out)
    seen = []

    def goes_on(job: Any) -> TrialResult:
        seen.append(job.number)
        return TrialResult("finished", value=float(job.number))

    monkeypatch.setattr(module, "train_trial", goes_on)
    done = tune(tuning, out, resume=True)
    assert seen == [2, 3] and [row.number for row in done.summary.trials] == [0, 1, 2, 3] and done.summary.best == 0
    assert load(out).trials[2].params == begun
    lrs = [trial.params["training.optimizer.lr"] for trial in load(out).trials]
    assert len(set(lrs)) == 4  # a resumed sampler does not repeat itself
    assert len(tune(tuning.replace({"trials": 5}), out, resume=True).summary.trials) == 5
    other = Tuning.load("localise", pairs, space=SPACE[:1], trials=4)
    with pytest.raises(ValueError, match="has another recipe or space"):
        tune(other, out, resume=True)


def test_missing_data_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^no training data: give data\.source"):
        tune(Tuning.load("translate", space=SPACE[:1]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
