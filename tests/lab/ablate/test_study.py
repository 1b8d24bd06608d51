"""Ablations: every variant is trained with every seed at equal budgets, resumed after a kill, and reported."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from qkv.io.directories.layout import read_json
from qkv.lab.ablate import single_run, study
from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.single_run import RESULT
from qkv.lab.ablate.study import run_ablation


def test_a_table_with_deviations_and_a_paired_bootstrap(pairs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_ablation(Ablation.load("localise", pairs, parts=["norm"], seeds=2), out, device="cpu")
    base, without = done.summary.rows
    assert (base.label, without.label) == ("baseline", "without norm")
    assert without.forecast.parameters < base.forecast.parameters
    assert done.summary.metrics[0] == "exact_match" and set(without.bootstrap) == {"exact_match", "bleu"}
    measured = [read_json(out / "baseline" / f"seed-{seed}" / "evaluation.json")["metrics"]["loss"] for seed in (0, 1)]
    spread = base.metrics["loss"]
    assert spread.mean == pytest.approx(sum(measured) / 2)
    assert spread.sd == pytest.approx(abs(measured[0] - measured[1]) / math.sqrt(2))
    assert without.differences["loss"] == pytest.approx(without.metrics["loss"].mean - spread.mean)
    table = (out / "table.md").read_text()
    assert table.splitlines()[2].startswith("| baseline | ") and " ± " in table and "2 of 2" in table
    tex = (out / "table.tex").read_text()
    assert r"\begin{tabular}" in tex and r"$\pm$" in tex and r"\%" in tex
    rows = list(csv.DictReader((out / "table.csv").open()))
    assert float(rows[0]["loss_mean"]) == spread.mean and float(rows[0]["loss_seed_1"]) == measured[1]
    saved = json.loads((out / "table.json").read_text())
    assert saved["rows"][1]["metrics"]["loss"]["mean"] == without.metrics["loss"].mean
    page = (out / "report.html").read_text()
    assert "paired bootstrap" in page and "<svg" in page and 'href="without-norm/seed-1/report.html"' in page
    assert 'href="table.tex"' in page and "//" not in page.replace("http://www.w3.org", "")


def test_runs_that_are_done_are_not_repeated(
    text_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trained = tmp_path / "out", []
    real = single_run.train

    def watched(recipe: Any, folder: Path, **options: Any) -> Any:
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(f"{folder.parent.name}/{folder.name}")
        return real(recipe, folder, **options)

    ablation = Ablation.load(text_recipe, vary=["position=rotary,alibi"], seeds=1)
    monkeypatch.setattr(single_run, "train", watched)
    with pytest.raises(KeyboardInterrupt):
        run_ablation(ablation, out, device="cpu")
    monkeypatch.setattr(
        single_run, "train", lambda *a, **k: trained.append(f"{a[1].parent.name}/{a[1].name}") or real(*a, **k)
    )
    run_ablation(ablation, out, device="cpu", resume=True)
    assert trained == ["position-rotary/seed-0", "position-alibi/seed-0"]
    more = Ablation.load(text_recipe, vary=["position=rotary,alibi,none"], seeds=1)
    done = run_ablation(more, out, device="cpu", resume=True)
    assert trained[2:] == ["position-none/seed-0"] and len(done.summary.rows) == 3


def test_an_interrupted_run_ends_the_ablation_without_a_report(
    text_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "train_run", lambda job: None)
    done = run_ablation(Ablation.load(text_recipe, parts=["norm"], seeds=1), tmp_path / "out", device="cpu")
    assert done.report is None and (tmp_path / "out" / "table.md").is_file()


@pytest.mark.slow
def test_several_at_once_give_the_same(text_recipe: Path, tmp_path: Path) -> None:
    ablation = Ablation.load(text_recipe, vary=["position=rotary,alibi"], seeds=1)
    one, two = (run_ablation(ablation, tmp_path / str(n), device="cpu", jobs=n) for n in (1, 2))
    for a, b in zip(one.summary.rows, two.summary.rows, strict=True):
        assert a.metrics["perplexity"].mean == pytest.approx(b.metrics["perplexity"].mean, rel=1e-4)


def test_a_directory_that_is_there(text_recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ablation = Ablation.load(text_recipe, vary=["position=rotary,alibi"], seeds=1)
    run_ablation(ablation, out, device="cpu")
    with pytest.raises(ValueError, match="--resume"):
        run_ablation(ablation, out, device="cpu")
    other = Ablation.load(text_recipe, ["training.max_steps=2"], vary=["position=rotary,alibi"], seeds=1)
    with pytest.raises(ValueError, match="runs of different recipes are not comparable"):
        run_ablation(other, out, device="cpu", resume=True)
    dropped = Ablation.load(text_recipe, ["training.max_steps=1"], parts=["norm"], seeds=1)
    run_ablation(dropped, out, device="cpu", overwrite=True)
    assert not (out / "position-alibi").exists() and (out / "without-norm" / "seed-0" / RESULT).is_file()
    with pytest.raises(ValueError, match="is not an ablation"):
        run_ablation(ablation, text_recipe.parent, device="cpu")


def test_missing_data_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^no training data: give data\.source"):
        run_ablation(Ablation.load("translate", vary=["position=rotary,alibi"]), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_resuming_never_drops_finished_runs_from_the_tables(text_recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = Ablation.load(text_recipe, vary=["position=rotary,alibi"], seeds=2)
    out.mkdir()
    (out / study.SETTINGS).write_text(first.to_yaml())
    for variant, seed in first.runs:
        folder = out / variant / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text("data: {}\n")
        (folder / RESULT).write_text('{"status": "finished"}')
    other = Ablation.load(text_recipe, vary=["position=rotary,none"], seeds=2)
    with pytest.raises(ValueError, match="would lose 2 finished runs, of variant position=alibi; give all variants"):
        run_ablation(other, out, resume=True)
    fewer = Ablation.load(text_recipe, vary=["position=rotary,alibi"], seeds=1)
    with pytest.raises(ValueError, match="would lose 2 finished runs, of seed 1"):
        run_ablation(fewer, out, resume=True)
