"""The task `retrieve`: what it reads, what it refuses, and the use of a run."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_recipes import FEW

from qkv.data.source import Skipped
from qkv.data.task import RandomContext
from qkv.runs.inference.run import Run
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.image_text_retrieval.task import Retrieve
from qkv.runs.train.tokenizer import make


def test_a_picture_that_would_fill_memory_is_refused_and_skipped(run: Run, tmp_path: Path) -> None:
    task = run.trained_on
    assert isinstance(task, Retrieve)
    large = task.replace({"image": (224, 224)})
    Image.new("RGB", (5000, 1)).save(tmp_path / "narrow.png")
    with pytest.raises(ValueError, match="1 × 5,000 pixels, which is too long and narrow to be enlarged to 224 × 224"):
        large.picture(str(tmp_path / "narrow.png"))
    example = {"image": tmp_path / "narrow.png", "answer": "a line", "where": "line 1"}
    (item,) = large.items([example], run.tokenizer, RandomContext(np.random.default_rng(0), False))
    assert isinstance(item, Skipped) and "too long and narrow" in item


def test_models_and_tasks_that_dont_fit_are_told() -> None:
    for settings, message in (
        (["model=captioner"], "the task retrieve needs a dual-encoder"),
        (
            ["task=caption", "objective=labels"],
            "the task caption needs a Transformer, and this model is a dual-encoder",
        ),
        (["task.longest=100"], "task.longest is 100, and the model reads texts of 32 tokens at most"),
    ):
        with pytest.raises(ValueError, match=message):
            recipe = Recipe.load("clip", [*FEW, *settings])
            recipe.resolve_data(make(recipe, False))


def test_texts_that_are_all_alike_are_refused(tmp_path: Path) -> None:
    rows = []
    for i in range(3):
        Image.new("RGB", (8, 8), (i, i, i)).save(tmp_path / f"{i}.png")
        rows.append(f'{{"image": "{i}.png", "answer": "a picture"}}')
    (tmp_path / "train.jsonl").write_text("\n".join(rows * 20), encoding="utf-8")
    with warnings.catch_warnings(), pytest.raises(ValueError, match="nothing to tell apart; give each picture a text"):
        warnings.simplefilter("ignore")
        recipe = Recipe.load("clip", [f"data={{kind: captions, path: {tmp_path}/train.jsonl}}"])
        recipe.resolve_data(make(recipe, False))
