"""`qkv show`: resolved recipes and presets, and batches of data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_tiny import TINY
from run_untrained import of, words

from qkv.cli import main
from qkv.io.directories.build import build
from qkv.io.families import preset

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_presets_recipes_and_runs_are_shown_with_their_settings(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "gpt2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 124439808
    assert main(["show", "gpt2", "decoder.position=alibi"]) == 0
    assert "position: alibi" in capsys.readouterr().out
    assert main(["show", "reverse", "model.d_model=32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["spec"]["d_model"] == 32
    assert main(["show", str(trained), "--data"]) == 0
    printed = capsys.readouterr().out
    assert "source" in printed and "</s>" in printed and "labels counted" in printed
    assert main(["show", "reverse", "--data", "--json", *TINY]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]


def test_a_hub_directory_shows_its_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=20)
    build(spec).save(tmp_path / "hub", to="hub")
    assert main(["show", str(tmp_path / "hub"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["parameters"] == spec.n_parameters and shown["model"]["d_model"] == 16
    assert main(["show", str(tmp_path / "hub"), "--data"]) == 2
    assert "is a model without a recipe, so it has no data" in capsys.readouterr().err


def test_the_model_of_the_package_shows_its_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "small-english", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["directory"] == "small-english" and len(shown["model"]["decoder"]["blocks"]) == 1
    assert main(["show", "small-english", "--data"]) == 2
    assert "is a model without a recipe" in capsys.readouterr().err


def test_a_preset_hidden_by_a_recipe_is_named_and_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["name"] == "gpt" and "preset:gpt is the preset" in err
    assert main(["show", "preset:gpt", "n_layers=1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["preset"] == "gpt" and not err
    assert main(["show", "preset:gtp"]) == 2
    assert "there is no preset 'gtp'; did you mean 'gpt'" in capsys.readouterr().err
    assert main(["show", "gptt"]) == 2
    err = capsys.readouterr().err
    assert "'gpt' or 'gpt' " not in err and "'gpt', 'gpt'" not in err and err.count("'gpt'") == 1


def test_a_model_without_a_recipe_is_titled_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of("gpt2", words(), "continue").save(tmp_path / "my-model", "hub")
    assert main(["show", str(tmp_path / "my-model")]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.strip() == "my-model" and any("directory:" in line for line in rest)


def test_each_near_name_is_suggested_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`gpt` is a recipe and a preset."""
    assert main(["show", "gptt"]) == 2
    assert "did you mean 'gpt' or 'gpt2'?" in capsys.readouterr().err
