"""Every entry of docs/results.md can be run: its recipes are known, with these overrides, and so are its baselines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from bench.real import command as pages
from bench.real.plot import figure

from bench import real
from qkv.runs.recipes.recipe import Recipe

ENTRIES = real.entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_steps_are_recipes_with_overrides_that_there_are(entry: real.Entry, tmp_path: Path) -> None:
    places = {"data": "data", "all": "all", "out": str(tmp_path)}
    runs = set()
    for step in filter(None, (*entry.steps, entry.documented)):
        words = shlex.split(step.format(**places))
        if words[:2] != ["qkv", "train"]:
            continue
        at = words.index("--out")
        runs.add(Path(words[at + 1]).name)
        settings = [word for word in words[3:] if "=" in word and not word.startswith("--")]
        if "--max-time" in words:
            settings.append("training.max_time=60")
        Recipe.load(words[2], settings)
    assert {figure["run"] for figure in entry.figures} <= runs


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_baselines_are_known(entry: real.Entry) -> None:
    known = real.baselines()
    for command in entry.baselines:
        words = shlex.split(command.format(data="data", all="all", out="out"))
        assert words[:3] == ["python", "-m", "bench.baselines"] and words[3] in known


def test_measuring_keeps_figures_commands_and_baselines(tmp_path: Path) -> None:
    said = json.dumps({"metrics": {"accuracy": 0.75}, "examples": 8}).replace("{", "{{").replace("}", "}}")
    entry = real.Entry(
        name="toy",
        title="A toy",
        steps=(f"mkdir {{out}}/run && echo '{said}' > {{out}}/run/evaluation.json",),
        figures=({"name": "accuracy", "run": "run", "metric": "accuracy"},),
        baselines=("""echo '{{"name": "guessing", "accuracy": 0.5}}'""",),
    )
    found = real.measure(entry, tmp_path, tmp_path / "scratch")
    assert found.figures == {"accuracy": 0.75} and found.baselines == [{"name": "guessing", "accuracy": 0.5}]
    table = real.table([found])
    assert "accuracy **75.0%**" in table and "guessing: accuracy 50.0%" in table and "mkdir" in real.commands([found])


def test_the_documented_command_adds_its_figures_to_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "KEPT", tmp_path / "kept")
    result = json.dumps({"metrics": {"accuracy": 0.625}, "examples": 8}).replace("{", "{{").replace("}", "}}")
    entry = real.Entry(
        name="toy",
        title="A toy",
        steps=("mkdir {out}/run && cp {data}/known.json {out}/run/evaluation.json",),
        figures=({"name": "accuracy", "run": "run", "metric": "accuracy"},),
        prepare="touch {out}/prepared",
        documented=f"cd {{out}} && test -e prepared && mkdir documented && echo '{result}' > documented/evaluation.json",
    )
    (tmp_path / "known.json").write_text('{"metrics": {"accuracy": 0.75}, "examples": 8}')
    real.keep(real.measure(entry, tmp_path, tmp_path / "scratch"))
    real.keep(real.measure_documented(entry, tmp_path, tmp_path / "scratch"))
    (found,) = real.kept()
    assert found.figures == {"accuracy": 0.75} and found.documented == {"accuracy": 0.625}
    assert "accuracy **75.0%** | accuracy 62.5% (0.0 min)" in real.table([found])
    assert "touch" in real.commands([found]) and "The documented command alone" in real.commands([found])


def test_a_step_that_fails_says_so(tmp_path: Path) -> None:
    entry = real.Entry(name="toy", title="A toy", steps=("echo no such thing >&2; false",), figures=())
    with pytest.raises(SystemExit, match="ended with 1: no such thing"):
        real.measure(entry, tmp_path, tmp_path / "scratch")


def test_data_that_are_not_there_leave_an_entry_out(tmp_path: Path) -> None:
    entry: Any = real.Entry(name="toy", title="A toy", steps=(), figures=(), data="nowhere")
    assert "there is no" in (entry.lacks(tmp_path) or "")


def test_a_name_means_that_entry_alone() -> None:
    assert [one.name for one in real.entries("code")] == ["code"]  # which is also a part of "autoencoder"
    assert {"trec", "pretrained"} <= {one.name for one in real.entries("TREC")}


def test_the_pages_and_the_plot_show_the_kept_results() -> None:
    for page in pages.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == pages.rendered(text), "run python -m bench render"
    for file, svg in figure(real.kept()).items():
        assert (pages.DOCS / file).read_text(encoding="utf-8") == svg, "run python -m bench render"
