"""Published results: their recipes, files and figures are known, and mistakes are one sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.reproduce.entry import PublishedFigure, PublishedResult, kept, names
from qkv.lab.reproduce.prepare import FIRST_OPERATOR, PREPARATIONS
from qkv.lab.reproduce.reproduce import commands
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize("name", names())
def test_its_commands_are_recipes_with_settings_that_there_are(name: str, tmp_path: Path) -> None:
    entry = PublishedResult.load(name)
    files = {one.name: tmp_path / one.name for one in entry.data}
    runs = {"chinchilla": {"fit.json"}, "listops": {FIRST_OPERATOR}}.get(name, set())
    for command in commands(entry, files, tmp_path):
        words = shlex.split(command)
        assert "{out}" not in command and not any("{" + one in command for one in files)
        runs.add(Path(words[words.index("--out") + 1]).name if "--out" in words else "fit.json")
        if words[1] == "ablate":
            Ablation.load(words[2], [w for w in words[3:] if "=" in w])
        if words[1] == "train" and words[2] != "extrapolate":
            limit = ["training.max_time=60"] if "--max-time" in words else []
            Recipe.load(words[2], [*(w for w in words[3:] if "=" in w and not w.startswith("--")), *limit])
    assert {figure.file.split("/")[0] for figure in entry.figures} <= runs
    assert not entry.prepare or entry.prepare in PREPARATIONS
    assert entry.differences and all(sentence.endswith(".") for sentence in entry.differences)
    assert len({figure.name for figure in entry.figures}) == len(entry.figures)


@pytest.mark.parametrize("name", names())
def test_what_was_measured_are_its_figures(name: str) -> None:
    result = kept(name)
    if result is not None:
        assert set(result.figures) <= {figure.name for figure in PublishedResult.load(name).figures}


def test_a_figure_is_met_within_its_goal() -> None:
    figure = PublishedFigure(name="x", published=2.0, goal="within 2 %", file="a.json", key="x")
    assert figure.met(2.039) and figure.met(1.961) and not figure.met(2.041)
    assert figure.replace({"goal": "at least"}).met(2.0) and not figure.replace({"goal": "at most"}).met(2.001)
    assert figure.replace({"goal": ""}).met(9.0) is None
    assert figure.replace({"goal": "at most", "target": 3.0}).met(2.9)


def test_a_figure_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"curves": {"x": [[1, 4.0], [2, 6.0]]}, "share": 0.5}))
    figure = PublishedFigure(name="x", published="", file="a.json", key="share", factor=100)
    assert figure.read(tmp_path) == 50
    assert figure.replace({"key": "curves.x.1.1 / curves.x.0.1", "factor": 1.0}).read(tmp_path) == 1.5
    with pytest.raises(ValueError, match=r"a\.json has no curves\.y"):
        figure.replace({"key": "curves.y"}).read(tmp_path)
    with pytest.raises(ValueError, match=r"b\.json is missing"):
        figure.replace({"file": "b.json"}).read(tmp_path)


def test_missing_data_are_named_with_their_address(tmp_path: Path) -> None:
    entry = PublishedResult.load("scan")
    with pytest.raises(
        ValueError, match=r"give the folder with --data DIR; download tasks_train_length\.txt from https://"
    ):
        entry.files(None)
    (tmp_path / "scan").mkdir()
    (tmp_path / "scan" / "tasks_train_length.txt.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"not in .*; download tasks_test_length\.txt from"):
        entry.files(tmp_path)
    (tmp_path / "tasks_test_length.txt").write_text("")
    assert entry.files(tmp_path)["tasks_train_length.txt"] == tmp_path / "scan" / "tasks_train_length.txt.gz"
    with pytest.raises(ValueError, match="no published result 'scn'; did you mean 'scan'"):
        PublishedResult.load("scn")


def test_table_3_has_a_figure_for_each_variant_in_the_order_of_the_recipe() -> None:
    ablation, entry = Ablation.load("ablate-table3"), PublishedResult.load("table3")
    rows = [variant.label for variant in ablation.variants.values()]
    assert rows[0] == "base" and ablation.baseline == "base"
    assert rows[1:] == [figure.name for figure in entry.figures]
    keys = [f"rows.{i}.metrics.perplexity.mean / rows.0.metrics.perplexity.mean" for i in range(1, len(rows))]
    assert [figure.key for figure in entry.figures] == keys
