"""What the bottleneck is measured by: bins of lengths, alignment, speed, sequential operations, gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_comparison import BOTTLENECK

import qkv
from qkv.look.gradient_reach import reach
from qkv.runs.compare.by_length import Alignment
from qkv.runs.compare.comparison import Comparison
from qkv.runs.compare.complexity import Reach, SequentialSteps, Speed, formula
from qkv.runs.compare.measures import Measurement
from qkv.runs.compare.page import write_page
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


def test_speed_stands_beside_its_formula(run: Run) -> None:
    measure = Speed(lengths=(4, 8), tokens=64)
    curve = measure(run)
    assert [x for x, _ in curve] == [4.0, 8.0] and all(y > 0 for _, y in curve)
    assert "grows as n^" in measure.remark(run, curve) and "T_y(d_a d_s + T_x(d_a + d_h))" in measure.remark(run, curve)
    assert "S² d" in formula(qkv.preset("transformer"))


def test_steps_in_a_row(run: Run) -> None:
    measure = SequentialSteps(lengths=(10, 20))
    assert measure(run) == [(10.0, 20.0), (20.0, 40.0)]
    assert "that to a target token 1 step" in measure.remark(run, measure(run))


def test_a_gradient_is_what_finite_differences_say() -> None:
    """Of a model with one direction: the Jacobian's norm by each embedding, the nearest first."""
    spec = qkv.preset("rnnsearch", vocab_size=9, d_e=3, d_h=4, d_s=4, directions=1, context="fixed-context")
    model = qkv.build(spec).eval()
    ids = torch.tensor([[1, 2, 3, 4]])

    def last(x: torch.Tensor) -> torch.Tensor:
        return model.encoder.layers(x)[0][0, -1]

    jacobian = torch.autograd.functional.jacobian(last, model.source_embedding(ids, None).detach())
    wanted = jacobian[:, 0].square().sum((0, 2)).sqrt().flip(0)
    found = torch.stack([torch.tensor(reach(model, ids, seed)) ** 2 for seed in range(40)]).mean(0).sqrt()
    torch.testing.assert_close(found, wanted, rtol=0.15, atol=0)
    with pytest.raises(ValueError, match="in an encoder or decoder stack, and Linear has none"):
        reach(torch.nn.Linear(2, 2), ids)


def test_gradients_of_a_run(run: Run) -> None:
    curve = Reach(length=6, rows=4)(run)
    assert [x for x, _ in curve] == [0, 1, 2, 3, 4, 5] and curve[0][1] == 1.0
    assert Reach(length=500)(run) == [] and "has 500 tokens" in Reach(length=500).summary({"a": []})[0]


def test_the_page_draws_every_measure(run: Run, tmp_path: Path) -> None:
    beside = "measure.beside=[{kind: sequential-steps, lengths: [4, 8]}, {kind: reach, length: 5}]"
    comparison = Comparison.load("bottleneck", [*BOTTLENECK, beside, "measure.examples=8"])
    assert comparison is not None
    found = [Measurement(measure) for measure in comparison.measure.all]
    for one in found:
        one.add("bahdanau", run)
    page = write_page(comparison, found, {}, tmp_path).read_text()
    assert all(one.measure.title in page for one in found) and "two source tokens is up to n steps long" in page


@pytest.mark.slow
def test_bahdanau_looks_where_it_should(tmp_path: Path) -> None:
    """Reversal, learned: the largest weight is on the right token at least 95 % of the time."""
    settings = ["data.longest=12", "training.max_steps=900", "training.eval_every=450", "evaluation.test_examples=100"]
    done = train(Recipe.load("bottleneck", settings), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.evaluation.metrics["exact_match"] > 0.9
    assert all(y >= 95 for _, y in Alignment()(load(tmp_path / "run", device="cpu")))
