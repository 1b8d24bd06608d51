"""`qkv cost --plan`, `--simulate` and `--published` print layouts, and mistakes are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")
PLAN = ("cost", "gpt2", "--plan", "--hardware", "h100", "--length", "256", "--batch", "64")


def test_a_plan_names_a_layout_that_a_recipe_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--gpus", "4", "--top", "2"]) == 0
    printed = capsys.readouterr().out
    assert "gpt2: 124,439,808 parameters on 4 × h100" in printed and "In qkv: scale." in printed


def test_a_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--gpus", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ("mixtral-8x7b", "n_layers=2"),
        pytest.param(("t5-small", "n_layers=2"), marks=pytest.mark.slow),
        pytest.param(("vit-base-16", "n_layers=2"), marks=pytest.mark.slow),
    ],
    ids=lambda words: words[0],
)
def test_mixtures_encoder_decoders_and_images_are_planned(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gpu, cluster = tmp_path / "gpu.json", tmp_path / "cluster.json"
    gpu.write_text('{"bf16": 1e15, "bandwidth": 3e12, "memory": 80e9}', encoding="utf-8")
    cluster.write_text('{"ranks": 8, "inside": 450e9, "between": 50e9}', encoding="utf-8")
    described = ("--hardware", str(gpu), "--network", str(cluster))
    assert main(["cost", *words, "--plan", "--gpus", "8", "--batch", "16", *described, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plans"] and found["plans"][0]["memory"]["needed"] <= 80e9
    assert "that fit into memory" in found["why"][1] and any(line.startswith("Predicted: ") for line in found["why"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "8", "--layout", "tensor=3"), "tensor"),
        (("--gpus", "8", "--layout", "tensor=2,tensor=4"), "tensor is given twice in --layout"),
        (("--gpus", "8", "--network", "string"), "there is no network 'string'"),
        (("--gpus", "8", "--network", "missing.json"), "there is no file missing.json"),
        (
            ("--gpus", "8", "--layout", "data=8", "--hardware", '{"bf16": 1e15, "bandwidth": 3e12, "memory": 2e9}'),
            "and described has 2.0 GB; the nearest that fits is ",
        ),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert main([*PLAN, *words]) == 2
    assert said in capsys.readouterr().err
