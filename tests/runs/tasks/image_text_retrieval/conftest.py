"""A small CLIP that was trained for a moment, and three pictures."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from small_recipes import FEW, NARROW_TEXT, SMALL

from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

PAIR = [*SMALL, *FEW, *NARROW_TEXT]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("clip") / "run"
    train(Recipe.load("clip", PAIR), folder, device="cpu")
    return load(folder, device="cpu")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(random.integers(0, 255, (20 + i, 40, 3), np.uint8)).save(folder / f"{i}.png")
    return sorted(str(path) for path in folder.iterdir())
