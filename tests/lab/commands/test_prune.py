"""The command prune: what it removes and prints, and mistakes in its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qkv
from qkv.cli import main


def test_the_command_prunes_the_heads_that_it_names(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "small"
    command = ["prune", str(trained), "--heads", "encoder.0:1", "--out", str(folder), "--examples", "8"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "encoder.0: removed heads 1" in said and "parameters:" in said
    assert main(["translate", str(folder), "b a"]) == 0
    capsys.readouterr()
    assert main(command) == 2
    assert (
        f"{folder} already exists; choose another directory, or replace it with --overwrite" in capsys.readouterr().err
    )
    assert main([*command, "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads"] == {"encoder.0": [1]}


def test_the_command_factorizes(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "small"
    assert main(["prune", str(trained), "--rank", "4", "--out", str(folder), "--examples", "8"]) == 0
    said = capsys.readouterr().out
    assert "encoder.0.attention: ranks q 4, k 4, v 4, out 4" in said and "parameters:" in said
    assert main(["translate", str(folder), "b a"]) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "nothing would be removed; give heads, neurons, layers or a rank, such as --heads 30%"),
        (["--heads", "100%"], "--heads is a share from 0% to below 100%, not 100%"),
        (["--until", "much"], "--until is a growth of the loss above 0, such as 5% or 0.05, not 'much'"),
        (["--until", "5%", "--heads", "30%"], "until chooses the heads; leave out the heads to remove and to keep"),
        (["--heads", "many"], "--heads is a share such as 30% or 0.3, not 'many'"),
        (["--heads", "encoder.0:x"], "--heads names heads as LAYER:HEADS, such as decoder.0:1,3, not 'encoder.0:x'"),
        (["--heads", "encoder.0:0,1"], "all 2 heads of encoder.0 would be removed; keep one at least, or remove whole"),
        (["--heads", "encoder.3:0"], "there is no attention layer 'encoder.3'; did you mean 'encoder.0'"),
        (["--heads", "30%", "--keep", "encoder.0:0"], "give heads to remove or heads to keep, not both"),
        (
            ["--heads", "30%", "--by", "magic"],
            "there is no measure of importance 'magic'; there is: gradient, ablation",
        ),
        (["--neurons", "20%", "--by", "gates"], "the measure of importance (gates) chooses a share of the heads"),
        (["--heads", "encoder.0:0", "--by", "gradient"], "no share is given; give one, such as 30%, or a growth of"),
        (["--neurons", "2"], "--neurons is a share from 0% to below 100%, not 2"),
        (["--rank", "half"], "--rank is a rank such as 16, or a share such as 50%, not 'half'"),
        (
            ["--rank", "100"],
            "a rank of 100 saves nothing, as U V would have no fewer parameters than W; take 10 or less",
        ),
        (["--layers", "2"], "2 of 2 layers can't be removed: every stack keeps one at least"),
    ],
)
def test_mistakes_are_one_sentence(
    given: list[str], message: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["prune", str(trained), *given, "--out", str(tmp_path / "small"), "--examples", "8"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_runs_without_weights_or_recipe(tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["prune", str(tmp_path / "none"), "--heads", "30%", "--out", str(tmp_path / "small")]) == 2
    assert "there is no run directory" in capsys.readouterr().err
    qkv.load(trained, "cpu").save(tmp_path / "bare", "qkv")
    (tmp_path / "bare" / "recipe.yaml").unlink()
    assert main(["prune", str(tmp_path / "bare"), "--heads", "30%", "--out", str(tmp_path / "small")]) == 2
    assert "has no recipe.yaml, which names its data; give a run that qkv trained" in capsys.readouterr().err
