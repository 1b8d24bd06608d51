from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from qkv.data.sources import Skipped
from qkv.run import metrics
from qkv.run.evaluate import evaluate_run, first
from qkv.run.load import load


def test_a_run_evaluates_as_at_its_end(trained: Path, trained_lm: Path) -> None:
    for folder in (trained, trained_lm):
        saved = json.loads((folder / "evaluation.json").read_text())
        found = evaluate_run(load(folder, device="cpu"))
        assert found.metrics == pytest.approx(saved["metrics"])
        assert found.samples == saved["samples"]
        assert found.signatures == saved["signatures"]


def test_likelihood_is_that_of_scoring_each_pair(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    found = evaluate_run(run, "validation", max_examples=5)
    pairs = [pair for pair, _ in zip(run.recipe.data.examples("validation"), range(5), strict=False)]
    scored = run.score([pair["source"] for pair in pairs], [pair["target"] for pair in pairs])
    nll, count = -sum(one.log_likelihood for one in scored), sum(len(one.log_probs) for one in scored)
    assert found.examples == 5
    assert found.metrics["loss"] == pytest.approx(nll / count, rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(nll / count), rel=1e-5)


def test_metrics_of_everything_are_there_with_signatures(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    everything = run.recipe.change(["evaluation.metrics=null"])
    found = evaluate_run(type(run)(run.model, run.tokenizer, run.generation, run.task, everything, run.path))
    assert set(found.metrics) == {"loss", "perplexity", "bits_per_byte", "exact_match", "bleu", "chrf"}
    assert "tok:13a" in found.signatures["bleu"]


def test_what_can_not_be_evaluated(trained: Path, trained_lm: Path) -> None:
    run, lm = load(trained, device="cpu"), load(trained_lm, device="cpu")
    with pytest.raises(ValueError, match="there is no split 'tests'; did you mean 'test'"):
        evaluate_run(run, "tests")
    with pytest.raises(ValueError, match=r"data\.longst"):
        evaluate_run(run, data=["longst=3"])
    assert lm.recipe is not None
    asking = lm.recipe.change(["evaluation.metrics=[bleu]"])
    with pytest.raises(ValueError, match="bleu compares outputs with a truth"):
        evaluate_run(type(lm)(lm.model, lm.tokenizer, lm.generation, lm.task, asking, lm.path))


def test_the_first_examples_are_those_that_stand_first_whatever_their_length() -> None:
    entries = [None, {"text": "long " * 9}, Skipped("empty"), None, {"text": "short"}, {"text": "more"}]
    assert first(entries, 2) == ({"text": "long " * 9}, Skipped("empty"), {"text": "short"})
    assert len(first(entries, 99)) == 4


def test_metrics_against_worked_values() -> None:
    assert metrics.exact_match(["a b", "c", "d "], ["a b", "C", "d"]).value == pytest.approx(2 / 3)
    same = ["the cat sat on the mat", "it rains a lot here"]
    assert metrics.bleu(same, same).value == pytest.approx(100)
    assert metrics.chrf(["abc"], ["xyz"]).value == 0
    assert metrics.perplexity(10 * math.log(7), 10) == pytest.approx(7)
    assert metrics.perplexity(1e9, 1) == math.inf
    assert metrics.bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)
