"""The likelihood of an evaluation: the terms of the objective, perplexity and bits per byte."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qkv.core.batch import Batch, Term, Terms
from qkv.nn.layers.losses import LossSums
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import load
from qkv.training.objective import NextToken


def test_likelihood_matches_scoring_each_pair(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    found = evaluate_run(run, "validation", max_examples=5)
    pairs = [pair for pair, _ in zip(run.recipe.data.examples("validation"), range(5), strict=False)]
    scored = run.score([pair["source"] for pair in pairs], [pair["target"] for pair in pairs])
    nll, count = -sum(one.log_likelihood for one in scored), sum(len(one.log_probs) for one in scored)
    assert found.examples == 5
    assert found.metrics["loss"] == pytest.approx(nll / count, rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(nll / count), rel=1e-5)


class Entropic(NextToken, kind="entropic-test"):
    """Language modeling with a statistic, and with a second loss."""

    def terms(self, sums: LossSums, batch: Batch, training: bool) -> Terms:
        made = super().terms(sums, batch, training)
        count = made["loss"].count
        return made | {
            "entropy": Term(torch.tensor(1000.0 * count), count, weight=0.0),
            "penalty": Term(torch.tensor(100.0 * count), count, weight=0.5),
        }


class Nameless(NextToken, kind="nameless-test"):
    """No term of it is called `loss`."""

    def terms(self, sums: LossSums, batch: Batch, training: bool) -> Terms:
        one = super().terms(sums, batch, training)["loss"]
        return {"a": Term(one.sum, one.count, weight=0.5), "b": Term(one.sum, one.count, weight=2.0)}


def test_loss_and_perplexity_are_of_the_tokens_alone(trained_lm: Path) -> None:
    run = load(trained_lm, device="cpu")
    assert run.recipe is not None
    plain = evaluate_run(run).metrics
    found = evaluate_run(replace(run, recipe=run.recipe.change(["objective=entropic-test"]))).metrics
    assert found == pytest.approx(plain | {"entropy": 1000.0, "penalty": 100.0})
    found = evaluate_run(replace(run, recipe=run.recipe.change(["objective=nameless-test"]))).metrics
    assert found == pytest.approx({"loss": 2.5 * plain["loss"], "a": plain["loss"], "b": plain["loss"]})
