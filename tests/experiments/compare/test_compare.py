"""Comparisons: every variant is trained and measured alike, drawn together, and none is trained twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from qkv.directories.layout import read_json
from qkv.experiments.compare import compare as module
from qkv.experiments.compare.compare import compare
from qkv.experiments.compare.comparison import Comparison
from qkv.experiments.compare.measures import Lengths

SMALL: dict[str, Any] = {
    "name": "small",
    "description": "Two schemes.",
    "compare": {
        "alibi": {"model.position": "alibi"},
        "learned": {"model.position": "learned", "model.max_positions": 16},
    },
    "measure": {"kind": "lengths", "factors": [1, 2, 4], "tokens": 128},
    "data": {"kind": "text"},
    "tokenizer": {"kind": "char"},
    "model": {"preset": "gpt", "d_model": 16, "n_layers": 1, "n_heads": 2, "position": "none", "max_positions": None},
    "objective": {"kind": "next-token"},
    "batching": {"context": 16, "tokens": 64, "workers": 0},
    "training": {"max_steps": 3, "optimizer": {"kind": "adamw", "lr": 0.001}, "precision": "fp32", "compile": False},
    "evaluation": {"examples": 2, "test_examples": 2, "samples": 1},
    "generation": {"max_new_tokens": 4},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    words = "the quick brown fox jumps over the lazy dog while it rains in the wood and nobody minds\n"
    for split, times in (("train", 40), ("validation", 8), ("test", 8)):
        (tmp_path / f"{split}.txt").write_text(words * times)
    paths = {"path": "train", "validation_path": "validation", "test_path": "test"}
    data = {**SMALL["data"], **{key: str(tmp_path / f"{split}.txt") for key, split in paths.items()}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**SMALL, "data": data}, sort_keys=False))
    return tmp_path / "small.yaml"


def load(recipe: Path, *settings: str) -> Comparison:
    found = Comparison.load(recipe, settings)
    assert found is not None
    return found


def test_variants_are_measured_and_drawn(recipe: Path, tmp_path: Path) -> None:
    done = compare(load(recipe), tmp_path / "out", device="cpu")
    assert [x for x, _ in done.curves["alibi"]] == [16, 32, 64]
    assert [x for x, _ in done.curves["learned"]] == [16]  # its table ends there
    kept = read_json(tmp_path / "out" / "comparison.json")
    assert kept["curves"] == json.loads(json.dumps(done.curves)) and kept["y"] == "perplexity"
    assert done.report is not None
    page = done.report.read_text()
    assert "alibi/report.html" in page and "<svg" in page and "its longest context" in page
    assert "Costs" in page and "MiB kept for the backward pass" in page
    assert kept["costs"].keys() == done.curves.keys()
    assert (tmp_path / "out" / "learned" / "report.html").is_file()


def test_one_length_is_what_the_run_itself_measures(recipe: Path, tmp_path: Path) -> None:
    """At the trained context over the whole test text, the curve's point is the evaluation's perplexity."""
    settings = ["measure.tokens=100000", "evaluation.test_examples=null", "compare.learned=null"]
    done = compare(load(recipe, *settings), tmp_path / "out", device="cpu")
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
        compare(load(recipe), out, device="cpu")
    assert list(read_json(out / "comparison.json")["curves"]) == ["alibi"]
    monkeypatch.setattr(module, "train", lambda *a, **k: trained.append(a[1].name) or real(*a, **k))
    done = compare(load(recipe), out, device="cpu", resume=True)
    assert trained == ["alibi", "learned"] and list(done.curves) == ["alibi", "learned"]


def test_a_directory_that_is_there(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    alone = load(recipe, "compare.learned=null")
    compare(alone, out, device="cpu")
    with pytest.raises(ValueError, match="--resume"):
        compare(alone, out, device="cpu")
    with pytest.raises(ValueError, match="other settings"):
        compare(load(recipe, "compare.learned=null", "seed=1"), out, device="cpu", resume=True)
    compare(load(recipe, "compare.learned=null", "seed=1"), out, device="cpu", overwrite=True)
    with pytest.raises(ValueError, match="is not a comparison"):
        compare(alone, recipe.parent, device="cpu")


def test_what_was_replaced_is_never_resumed(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overwriting comparison that is interrupted leaves no run with the old settings for a later one to find."""
    out, seeds = tmp_path / "out", []
    compare(load(recipe), out, device="cpu")
    real = module.train

    def once(made: Any, folder: Path, **options: Any) -> Any:
        if seeds:
            raise KeyboardInterrupt
        seeds.append(made.seed)
        return real(made, folder, **options)

    monkeypatch.setattr(module, "train", once)
    with pytest.raises(KeyboardInterrupt):
        compare(load(recipe, "seed=1"), out, device="cpu", overwrite=True)
    monkeypatch.setattr(module, "train", lambda made, *a, **k: seeds.append(made.seed) or real(made, *a, **k))
    compare(load(recipe, "seed=1"), out, device="cpu", resume=True)
    assert seeds == [1, 1]
    assert all("seed: 1" in (out / name / "recipe.yaml").read_text() for name in ("alibi", "learned"))


def test_a_comparison_that_never_began_leaves_nothing_in_the_way(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="nowhere"):
        compare(load(recipe, f"data.path={tmp_path / 'nowhere.txt'}"), out, device="cpu")
    assert compare(load(recipe, "compare.learned=null"), out, device="cpu").report is not None


@pytest.mark.parametrize(
    "setting, said",
    [
        ("compare.alibi={model.position: alibo}", "compare.alibi"),
        ("compare={a/b: {}}", "folder"),
        ("measure.factors=[2,1]", "ascending"),
        ("measure.kind=length", "lengths"),
        ("measure.tokens=32", "raise it"),
    ],
)
def test_mistakes_are_named(recipe: Path, tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compare(load(recipe, setting), tmp_path / "out", device="cpu")


def test_progress_is_what_was_measured_in_training(recipe: Path, tmp_path: Path) -> None:
    settings = ["measure={kind: progress, metric: loss}", "training.eval_every=1", "compare.learned=null"]
    done = compare(load(recipe, *settings), tmp_path / "out", device="cpu")
    lines = [json.loads(line) for line in (tmp_path / "out" / "alibi" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [(line["elapsed"], line["loss"]) for line in lines if line["type"] == "eval"]
    assert done.curves["alibi"] == evaluations and len(evaluations) >= 3
    with pytest.raises(ValueError, match="never measured"):
        settings[0] = "measure={kind: progress, metric: bleu}"
        compare(load(recipe, *settings), tmp_path / "other", device="cpu")


def test_a_plain_recipe_compares_nothing() -> None:
    assert Comparison.load("reverse") is None


def test_what_curves_say() -> None:
    told = Lengths().summary({"alibi": [(8.0, 10.0), (16.0, 9.5)], "learned": [(8.0, 11.0)]})
    assert told == [
        "alibi: 10.00 at L = 8 tokens; 0.95 × at 2 L.",
        "learned: 11.00 at 8 tokens, its longest context.",
    ]


def test_what_a_variant_costs(recipe: Path, tmp_path: Path) -> None:
    """More layers keep more and have more parameters; the test split's metrics are those of the run."""
    settings = ["compare.learned=null", "compare.deeper={model.n_layers: 4}"]
    done = compare(load(recipe, *settings), tmp_path / "out", device="cpu")
    alibi, deeper = done.costs["alibi"], done.costs["deeper"]
    assert alibi.parameters < deeper.parameters and 0 < alibi.kept < deeper.kept
    assert alibi.tokens == deeper.tokens > 0 and alibi.seconds > 0
    assert alibi.metrics == read_json(tmp_path / "out" / "alibi" / "evaluation.json")["metrics"]
