"""What follows a training: evaluation, directory and report."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from run_tiny import TINY

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def test_a_quick_check_decodes_few_examples_and_says_how_to_have_all(tmp_path: Path) -> None:
    sizes = [text for text in TINY if not text.startswith("data.")]
    settings = [*sizes, "data.train=300", "data.test=300", "data.validation=300", "training.max_steps=3"]
    out = io.StringIO()
    recipe = Recipe.load("reverse", settings)
    done = train(recipe, tmp_path / "run", device="cpu", console=Console(file=out, width=300))
    assert done.evaluation is not None and (done.evaluation.examples, done.evaluation.available) == (28, 300)
    assert "Evaluated on 28 of 300 examples of the test split, because training took only 3 steps" in out.getvalue()
    assert f"qkv eval {tmp_path / 'run'} --max-examples all" in out.getvalue()
    assert "Evaluations during training take 28 of 300 examples" in out.getvalue()
