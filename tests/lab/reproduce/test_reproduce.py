"""Reproducing: the commands run in order, our numbers are read and stand beside the published ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from preloaded_python import program

from qkv.lab.reproduce.entry import PublishedFigure, PublishedResult
from qkv.lab.reproduce.reproduce import reproduce

TINY = (
    "model.d_model=16 model.n_layers=1 model.d_ff=16 model.n_heads=2 data.train=60 data.validation=8 data.test=8 "
    "batching.tokens=512 batching.workers=0 training.max_steps=2 training.eval_every=null training.save_every=null "
    "evaluation.examples=4 generation.max_new_tokens=2 training.precision=fp32"
)


@pytest.fixture(autouse=True)
def quick_start(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands start in a process that has imported qkv."""
    monkeypatch.setattr(sys, "executable", str(program(tmp_path_factory.mktemp("bin"))))


def entry(*steps: str, published: float = 0.0, name: str = "exact match") -> PublishedResult:
    file, key = "run/evaluation.json", "metrics.exact_match"
    figure = PublishedFigure(name=name, published=published, goal="at least", file=file, key=key, factor=100, unit="%")
    return PublishedResult(
        name="toy", title="A toy", source="Nobody", link="https://example.org", steps=steps, figures=(figure,), minutes=1.0,
        differences=("It is smaller.",),
    )  # fmt: skip


def test_it_trains_and_compares(tmp_path: Path) -> None:
    said: list[str] = []
    out = tmp_path / "with space"
    done = reproduce(entry(f"train reverse {TINY} --out {{out}}/run", published=101.0), None, out, say=said.append)
    assert done.result is not None and done.result.minutes is not None
    measured = json.loads((out / "run" / "evaluation.json").read_text())["metrics"]["exact_match"]
    assert done.result.figures == {"exact match": 100 * measured}
    page = (out / "comparison.md").read_text()
    assert (
        "| exact match | 101.00 % | " in page and "not met (at least 101.00 %)" in page and "- It is smaller." in page
    )
    assert json.loads((out / "comparison.json").read_text())["figures"] == done.result.figures
    assert len(said) == 1 and said[0].startswith("$ qkv train reverse")


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`qkv train nothing` ended with status 2; its message is above"):
        reproduce(entry("train nothing"), None, tmp_path, say=lambda text: None)
    assert not (tmp_path / "comparison.md").exists()


def test_its_files_never_come_among_others(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "input.txt").write_text("To be")
    with pytest.raises(ValueError, match=r"input\.txt is not one of the files of the reproduction toy"):
        reproduce(entry("train reverse --out {out}/run"), None, tmp_path / "data", say=lambda text: None)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["input.txt"]
