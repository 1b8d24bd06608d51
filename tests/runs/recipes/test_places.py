"""A recipe and its data are used from anywhere: paths are relative to the recipe's file, and absolute in a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.runs.recipes import places
from qkv.runs.recipes.recipe import Recipe

RECIPE = """
name: mine
data: {kind: pairs, path: data/pairs.tsv}
tokenizer: {kind: char}
model: {preset: transformer, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 16}
objective: {kind: sequence-to-sequence}
training: {max_steps: 2}
generation: {max_new_tokens: 4}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (home / "recipe.yaml").write_text(RECIPE)
    (home / "data" / "pairs.tsv").write_text("".join(f"{n}\t{2 * n}\n" for n in range(120)))
    return home


def test_a_run_is_made_evaluated_and_resumed_from_anywhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = home.parent / "out"
    monkeypatch.chdir(home.parent)
    assert main(["train", "home/recipe.yaml", "--out", str(out), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "First example: '0' → '0'" in said
    assert len(re.findall(r"the (?:validation|test) split has 1\d examples", said)) == 2  # a tenth of 120
    assert Recipe.load(out).data.to_dict()["path"] == str(home / "data" / "pairs.tsv")
    monkeypatch.chdir(home.parent / "elsewhere")
    assert main(["eval", "../out", "--device", "cpu"]) == 0
    assert main(["train", "../out", "--resume", "--device", "cpu", "training.max_steps=3"]) == 0
    assert main(["train", "../home/recipe.yaml", "--resume", "--out", str(out), "training.max_steps=4"]) == 0


def test_settings_are_relative_to_the_current_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent / "elsewhere")
    Path("other.tsv").write_text("a\tb\n")
    recipe = Recipe.load("../home/recipe.yaml", ["data.path=other.tsv"])
    assert recipe.data.to_dict()["path"] == "other.tsv"
    assert recipe.resolve(100).data.to_dict()["path"] == str(home.parent / "elsewhere" / "other.tsv")


def test_what_is_only_in_the_current_directory_is_taken_with_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "data").rename(home.parent / "elsewhere" / "data")
    monkeypatch.chdir(home.parent / "elsewhere")
    with pytest.warns(UserWarning, match=r"'data/pairs\.tsv' of \.\./home/recipe\.yaml is not beside that recipe"):
        recipe = Recipe.load("../home/recipe.yaml")
    assert recipe.data.to_dict()["path"] == str(home.parent / "elsewhere" / "data" / "pairs.tsv")


def test_a_missing_file_is_named_where_it_was_looked_for(home: Path) -> None:
    (home / "data" / "pairs.tsv").unlink()
    with pytest.raises(ValueError, match=str(home / "data" / "pairs.tsv")):
        Recipe.load(home / "recipe.yaml").data.table("train")


def test_the_home_of_an_unknown_user_is_refused_in_a_sentence(tmp_path: Path) -> None:
    tree = {"data": {"kind": "pairs", "path": "~nobody-of-that-name/pairs.tsv"}}
    for resolve in (places.here, lambda tree: places.beside(tree, tmp_path / "recipe.yaml")):
        with pytest.raises(ValueError, match="names the home of 'nobody-of-that-name', who is not a user"):
            resolve(tree)
    assert places.here({"data": {"kind": "pairs", "path": "./~nobody"}})["data"]["path"] == "./~nobody"


def test_every_place_of_a_recipe_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "v", "m"):
        (tmp_path / name).touch()
    mixed = {"kind": "mixture", "parts": [{"source": {"kind": "text", "path": ["a", "/b"]}, "prefix": "a"}]}
    tree = {
        "data": mixed,
        "vectors": {"path": "v"},
        "model": {"directory": "m"},
        "tokenizer": {"kind": "file", "path": "gpt2"},
    }
    found = places.beside(tree, tmp_path / "recipe.yaml")
    assert found["data"]["parts"] == [{"source": {"kind": "text", "path": [str(tmp_path / "a"), "/b"]}, "prefix": "a"}]
    assert found["vectors"] == {"path": str(tmp_path / "v")} and found["model"] == {"directory": str(tmp_path / "m")}
    assert found["tokenizer"]["path"] == "gpt2"  # may be on the Hub
    of_the_hub = {"data": {"kind": "datasets", "path": "wmt14", "source": "a", "target": "b"}}
    assert places.beside(of_the_hub, tmp_path / "recipe.yaml") == of_the_hub
    monkeypatch.chdir(tmp_path)
    assert places.here({"data": {"kind": "pairs", "source": "a", "target": "none"}})["data"] == {
        "kind": "pairs", "source": str(tmp_path / "a"), "target": "none"
    }  # fmt: skip
