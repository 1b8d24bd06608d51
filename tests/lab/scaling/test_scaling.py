"""Studies from end to end: trained, fitted, held out, resumed after a kill, with a run that diverges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_study import small_study

from qkv.io.directories.layout import REPORT, read_json
from qkv.lab.laws.points import read_points
from qkv.lab.scaling import runs as module
from qkv.lab.scaling.runs import Outcome, steps_done, train_run
from qkv.lab.scaling.scaling import POINTS, RESULTS, RUNS, Scaled, scale
from qkv.lab.scaling.study import ScalingStudy
from qkv.training.checkpoints.state import TrainingState
from qkv.training.result import Diverged


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> ScalingStudy:
    folder = tmp_path_factory.mktemp("texts")
    return small_study(folder, budgets=(5e7, 8e7), sizes=("8x1", "12x1", "16x1", "24x1"))


@pytest.fixture(scope="module")
def done(study: ScalingStudy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scaled]:
    yield scale(study, tmp_path_factory.mktemp("study") / "out", jobs=1, device="cpu", bootstrap=4)


def test_the_laws_are_fitted_without_the_largest_model(done: Scaled) -> None:
    assert done.laws is not None and len(done.laws.points) == 6 and len(done.outcomes) == 8
    assert [one.run for one in done.held_out] == ["5e07-24x1", "8e07-24x1"]
    for one in done.held_out:
        assert (
            one.loss == done.outcomes[one.run].loss and one.predicted.low <= one.predicted.value <= one.predicted.high
        )
        assert one.error == pytest.approx(one.predicted.value / one.loss - 1)


def test_the_files_hold_runs_and_laws(done: Scaled) -> None:
    results = read_json(done.folder / RESULTS)
    assert len(results["runs"]) == 8 and [run["held_out"] for run in results["runs"]] == [False] * 3 + [True] + [
        *([False] * 3),
        True,
    ]
    assert done.laws is not None and results["laws"] == json.loads(json.dumps(done.laws.to_dict()))
    points = read_points(done.folder / POINTS)
    assert points.loss.tolist() == [outcome.loss for outcome in done.outcomes.values()]


def test_the_report_shows_predictions_and_links_runs(done: Scaled) -> None:
    assert done.report == done.folder / REPORT
    page = done.report.read_text()
    for part in (
        "Loss against compute",
        "Compute-optimal frontier",
        "Held-out predictions",
        "learning rate ∝ width^−1",
    ):
        assert part in page
    assert 'href="5e07-8x1/report.html"' in page and "<script" not in page


def test_a_study_can_only_be_resumed_with_its_settings(done: Scaled, study: ScalingStudy, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a scaling study; continue it with --resume"):
        scale(study, done.folder, device="cpu")
    other = study.replace({"scaling.rate": "constant"})
    with pytest.raises(ValueError, match="has other settings; resume it with those"):
        scale(other, done.folder, device="cpu", resume=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something that is not a scaling study"):
        scale(study, tmp_path / "out", device="cpu", overwrite=True)


@pytest.mark.slow
def test_an_interrupted_study_continues(study: ScalingStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded runs are not trained again, and a diverged one is a row without a loss."""
    out, trained, real = tmp_path / "out", [], module.train

    def watched(recipe: Any, folder: Path, **options: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(folder.name)
        if folder.name == "5e07-12x1":
            raise Diverged(TrainingState(step=3), None)
        return real(recipe, folder, **options)

    monkeypatch.setattr(module, "train", watched)
    with pytest.raises(KeyboardInterrupt):
        scale(study, out, jobs=1, device="cpu")
    assert list(read_json(out / RUNS)) == ["5e07-8x1", "5e07-12x1"]
    monkeypatch.setattr(module, "train", lambda *a, **k: trained.append(a[1].name) or real(*a, **k))
    with pytest.raises(ValueError, match="at least 6 points"):  # five are left with the one that diverged
        scale(study, out, jobs=1, device="cpu", resume=True)
    assert len(trained) == len(set(trained)) == 8
    assert "diverged" in read_json(out / RUNS)["5e07-12x1"]["diverged"]
    assert len(read_points(out / POINTS)) == 7


@pytest.mark.slow
def test_runs_at_a_time_match_one_after_another(done: Scaled, study: ScalingStudy, tmp_path: Path) -> None:
    parallel = scale(study, tmp_path / "out", jobs=2, device="cpu", bootstrap=0)
    assert {name: one.loss for name, one in parallel.outcomes.items()} == pytest.approx(
        {name: one.loss for name, one in done.outcomes.items()}
    )


def test_too_little_time_or_too_few_runs_are_refused_before_training(study: ScalingStudy, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"8 runs would take about \d.*, longer than --time 1s; give --budgets of about"
    ):
        scale(study, tmp_path / "out", jobs=1, seconds=1, device="cpu")
    few = study.replace({"scaling.budgets": (5e7,)})
    with pytest.raises(ValueError, match="there are 3 points"):
        scale(few, tmp_path / "out", jobs=1, device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_finished_run_is_only_read(done: Scaled, study: ScalingStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("trained again"))
    folder = done.folder / "5e07-8x1"
    recipe = module.Recipe.load(folder)
    assert train_run(recipe, folder, "cpu").loss == done.outcomes["5e07-8x1"].loss
    assert steps_done(folder) == recipe.training.max_steps
    assert Outcome().interrupted and not Outcome(diverged="NaN").interrupted
