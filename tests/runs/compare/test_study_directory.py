"""The directory of a study: free, held by a study, or by something else."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

from qkv.core.atomic import old
from qkv.io.directories.layout import read_json
from qkv.runs.compare.study_directory import DATA, begun, data_of, needs_resume, saved_study
from qkv.runs.recipes.recipe import Recipe


def test_a_directory_is_free_or_holds_a_study(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert saved_study(out, "ablation.yaml", "an ablation") is None
    out.mkdir()
    assert saved_study(out, "ablation.yaml", "an ablation") is None
    (out / "ablation.yaml").write_text("seeds: [0, 1]\n")
    assert saved_study(out, "ablation.yaml", "an ablation") == {"seeds": [0, 1]}
    with pytest.raises(
        ValueError, match="out holds something that is not a tuning; choose another directory with --out"
    ):
        saved_study(out, "tuning.yaml", "a tuning")
    with pytest.raises(ValueError, match="is not a tuning"):
        saved_study(out / "ablation.yaml", "tuning.yaml", "a tuning")
    assert "holds a tuning; continue it with --resume" in str(needs_resume(out, "a tuning"))


def test_a_study_is_not_continued_on_other_data_or_by_two_processes(tmp_path: Path) -> None:
    out, quiet = tmp_path / "out", Console(quiet=True)

    def begin(data: str, overwrite: bool = False) -> AbstractContextManager[None]:
        return begun(out, "ablation.yaml", "seeds: [0]\n", quiet, overwrite, {"a": data})

    with begin("one"), pytest.raises(ValueError, match="out is in use by process"), begin("one"):
        pass
    with begin("two"):  # nothing was trained yet
        (out / "a" / "seed-0").mkdir(parents=True)
        (out / "a" / "seed-0" / "recipe.yaml").write_text("data: {}\n")
    with pytest.raises(ValueError, match=r"the data of a have changed since runs in .* were trained"), begin("one"):
        pass
    with begin("one", overwrite=True):
        assert read_json(out / DATA) == {"checksums": {"a": "one"}} and not (out / "a").exists()
    assert old(out).is_dir() and not (out / ".lock").exists()


def test_the_checksum_of_data_changes_with_their_content(tmp_path: Path) -> None:
    def write(first: str) -> None:
        rows = (f"text {i},{first if i % 2 else 'c'}\n" for i in range(40))
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))

    write("a")
    file = ["data.kind=labelled", f"data.path={tmp_path / 'a.csv'}", "data.text=text", "data.label=label"]
    recipe = Recipe.load("classify", file)
    before = data_of({"a": recipe, "b": recipe})
    assert before["a"] == before["b"]
    write("b")
    assert data_of({"a": recipe})["a"] != before["a"]
