"""The recipe of a small comparison, and a trained run of the recipe `bottleneck`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from small_comparison import BOTTLENECK, SMALL

from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    words = "the quick brown fox jumps over the lazy dog while it rains in the wood and nobody minds\n"
    for split, times in (("train", 40), ("validation", 8), ("test", 8)):
        (tmp_path / f"{split}.txt").write_text(words * times)
    paths = {"path": "train", "validation_path": "validation", "test_path": "test"}
    data = {**SMALL["data"], **{key: str(tmp_path / f"{split}.txt") for key, split in paths.items()}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**SMALL, "data": data}, sort_keys=False))
    return tmp_path / "small.yaml"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "bahdanau"
    train(Recipe.load("bottleneck", BOTTLENECK), out, device="cpu")
    return load(out, device="cpu")
