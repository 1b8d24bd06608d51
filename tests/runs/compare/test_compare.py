"""Comparisons: every variant is trained and measured alike, drawn together, and none is trained twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_comparison import load_comparison

from qkv.io.directories.layout import read_json
from qkv.runs.compare import compare as module
from qkv.runs.compare.compare import compare


def test_variants_are_measured_and_drawn(recipe: Path, tmp_path: Path) -> None:
    done = compare(load_comparison(recipe), tmp_path / "out", device="cpu")
    assert [x for x, _ in done.curves["alibi"]] == [16, 32, 64]
    assert [x for x, _ in done.curves["learned"]] == [16]  # its table ends there
    kept = read_json(tmp_path / "out" / "comparison.json")
    assert kept["curves"] == json.loads(json.dumps(done.curves)) and kept["y"] == "perplexity"
    assert done.report is not None
    page = done.report.read_text()
    assert "alibi/report.html" in page and "<svg" in page and "its longest context" in page
    assert "Costs" in page and "MiB kept for the backward pass" in page
    assert (
        page.count('<th scope="row">alibi</th>') == 2
        and 'role="region" aria-label="Numbers"' in page
        and 'aria-label="Costs"' in page
    )
    assert kept["costs"].keys() == done.curves.keys()
    assert (tmp_path / "out" / "learned" / "report.html").is_file()


def test_one_length_is_what_the_run_itself_measures(recipe: Path, tmp_path: Path) -> None:
    """At the trained context over the whole test text, the curve's point is the evaluation's perplexity."""
    settings = ["measure.tokens=100000", "evaluation.test_examples=null", "compare.learned=null"]
    done = compare(load_comparison(recipe, *settings), tmp_path / "out", device="cpu")
    measured = read_json(tmp_path / "out" / "alibi" / "evaluation.json")["metrics"]["perplexity"]
    assert done.curves["alibi"][0][1] == pytest.approx(measured, rel=1e-5)


def test_what_is_finished_is_not_trained_again(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, trained = tmp_path / "out", []
    real = module.train

    def watched(made: Any, folder: Path, **options: Any) -> Any:
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(folder.name)
        return real(made, folder, **options)

    monkeypatch.setattr(module, "train", watched)
    with pytest.raises(KeyboardInterrupt):
        compare(load_comparison(recipe), out, device="cpu")
    assert list(read_json(out / "comparison.json")["curves"]) == ["alibi"]
    monkeypatch.setattr(module, "train", lambda *a, **k: trained.append(a[1].name) or real(*a, **k))
    done = compare(load_comparison(recipe), out, device="cpu", resume=True)
    assert trained == ["alibi", "learned"] and list(done.curves) == ["alibi", "learned"]


def test_a_directory_that_is_there(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    alone = load_comparison(recipe, "compare.learned=null")
    compare(alone, out, device="cpu")
    with pytest.raises(ValueError, match="--resume"):
        compare(alone, out, device="cpu")
    with pytest.raises(ValueError, match="other settings"):
        compare(load_comparison(recipe, "compare.learned=null", "seed=1"), out, device="cpu", resume=True)
    compare(load_comparison(recipe, "compare.learned=null", "seed=1"), out, device="cpu", overwrite=True)
    with pytest.raises(ValueError, match="is not a comparison"):
        compare(alone, recipe.parent, device="cpu")


@pytest.mark.slow
def test_what_was_replaced_is_never_resumed(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overwriting comparison that is interrupted leaves no run with the old settings for a later one to find."""
    out, seeds = tmp_path / "out", []
    compare(load_comparison(recipe), out, device="cpu")
    real = module.train

    def once(made: Any, folder: Path, **options: Any) -> Any:
        if seeds:
            raise KeyboardInterrupt
        seeds.append(made.seed)
        return real(made, folder, **options)

    monkeypatch.setattr(module, "train", once)
    with pytest.raises(KeyboardInterrupt):
        compare(load_comparison(recipe, "seed=1"), out, device="cpu", overwrite=True)
    monkeypatch.setattr(module, "train", lambda made, *a, **k: seeds.append(made.seed) or real(made, *a, **k))
    compare(load_comparison(recipe, "seed=1"), out, device="cpu", resume=True)
    assert seeds == [1, 1]
    assert all("seed: 1" in (out / name / "recipe.yaml").read_text() for name in ("alibi", "learned"))


def test_a_comparison_that_never_began_leaves_nothing_in_the_way(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="nowhere"):
        compare(load_comparison(recipe, f"data.path={tmp_path / 'nowhere.txt'}"), out, device="cpu")
    assert compare(load_comparison(recipe, "compare.learned=null"), out, device="cpu").report is not None
