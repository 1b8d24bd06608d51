"""What the bottleneck is measured by: bins of lengths, alignment, speed, sequential operations, gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.compare.by_length import Alignment
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def test_a_run_comes_back_as_it_was(run: Run) -> None:
    assert run.model.spec.kind == "recurrent" and run.recipe is not None
    assert run.recipe.model.spec(run.model.vocab_size) == run.model.spec
    assert run.path is not None and "Attention" in (run.path / "report.html").read_text()


def test_it_is_used_as_any_run(run: Run, tmp_path: Path) -> None:
    """Texts in and out, scores, vectors, and its own directory, since the Hub has no such family."""
    texts = ["a b c", "d e f g h"]
    assert [vector.shape for vector in run.embed(texts)] == [(16,), (16,)]
    assert all(score.log_likelihood < 0 for score in run.score(texts, ["c b a", "h g f e d"]))
    with pytest.warns(UserWarning, match="no Hub family has models of the kind 'recurrent'"):
        run.save(tmp_path / "again")
    again = load(tmp_path / "again", device="cpu")
    assert again.model.spec == run.model.spec
    assert again.generate(texts, num_beams=3) == run.generate(texts, num_beams=3)


@pytest.mark.slow
def test_bahdanau_looks_where_it_should(tmp_path: Path) -> None:
    """Reversal, learned: the largest weight is on the right token at least 95 % of the time."""
    settings = ["data.longest=12", "training.max_steps=900", "training.eval_every=450", "evaluation.test_examples=100"]
    done = train(Recipe.load("bottleneck", settings), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.evaluation.metrics["exact_match"] > 0.9
    assert all(y >= 95 for _, y in Alignment()(load(tmp_path / "run", device="cpu")))
