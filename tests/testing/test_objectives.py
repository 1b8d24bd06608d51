"""Checks of objectives pass for qkv's own and find wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from small_recipes import RECIPES, prepare, prepared
from torch import nn
from torch.nn import functional as F

from qkv.core.batch import IGNORE, Batch, Term, Terms
from qkv.testing import Report, check
from qkv.training.objective import NextToken, Objective


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


OF_PAIRS = ("sequence-to-sequence", "minimum-risk", "reinforce")


def test_each_objective_has_a_case() -> None:
    own = {kind for kind, cls in Objective.kinds.items() if cls.__module__.startswith("qkv.")}
    assert own == {prepared(kind).recipe.objective.kind for kind in RECIPES} | {*OF_PAIRS, "contrastive", "siglip"}


@pytest.mark.parametrize("task", RECIPES)
def test_own_objectives_pass(task: str) -> None:
    recipe, _, model, batches = prepared(task)
    report = check(recipe.objective, model=model, batches=batches)
    report.raise_for_failures()
    assert outcomes(report)["terms"] == outcomes(report)["gradients"] == "passed"


def test_the_sigmoid_loss_of_pairs_passes() -> None:
    _, _, model, batches = prepared("retrieve")
    report = check(Objective.from_dict({"kind": "siglip"}), model=model, batches=batches)
    report.raise_for_failures()


@pytest.mark.parametrize("kind", OF_PAIRS)
def test_an_objective_of_pairs_passes(kind: str) -> None:
    sizes = ["data.train=40", "data.validation=8", "data.test=8"]
    recipe, _, model, batches = prepare("reverse", [*sizes, f"objective={{kind: {kind}}}"])
    report = check(recipe.objective, model=model, batches=batches)
    assert recipe.objective.kind == kind and set(outcomes(report).values()) == {"passed"}, report


def test_an_objective_of_whole_batches_is_not_split() -> None:
    _, _, model, batches = prepared("similarity")
    report = check(Objective.from_dict({"kind": "contrastive"}), model=model, batches=batches)
    report.raise_for_failures()
    assert outcomes(report)["parts = whole"] == "not checked"


def test_a_language_model_serves_where_it_suits() -> None:
    assert set(outcomes(check(NextToken())).values()) == {"passed"}
    report = check(Objective.from_dict({"kind": "detection"}))
    assert outcomes(report)["terms"] == "not checked" and "give `model` and `batches`" in report.checks[1].reason


class Sums(Objective):
    """The cross-entropy of next tokens, which the wrong objectives below change in one place."""

    def losses(self, model: nn.Module, batch: Batch, ignore: int = IGNORE) -> Any:
        assert batch.labels is not None
        labels = batch.labels if ignore == IGNORE else batch.labels.clamp(min=0)
        return F.cross_entropy(model(**batch.inputs).flatten(0, 1), labels.flatten(), reduction="none")


class Mean(Sums, kind="mutant-mean"):
    """Gives the mean for the sum."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(self.losses(model, batch).mean(), batch.counts["loss"])}


class Padding(Sums, kind="mutant-padding"):
    """Learns the padding."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(self.losses(model, batch, ignore=0).sum(), batch.counts["loss"])}


class Rows(Sums, kind="mutant-rows"):
    """Counts rows, without saying so in `counts`."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(self.losses(model, batch).sum(), batch.rows)}


class Logarithm(Sums, kind="mutant-logarithm"):
    """The logarithm of labels that are 0."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        loss = self.losses(model, batch)
        return {"loss": Term(((loss - loss.max()).clamp(min=0).sqrt() + loss).sum(), batch.counts["loss"])}


class Detached(Sums, kind="mutant-detached"):
    """No gradient reaches the model."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(self.losses(model, batch).sum().detach(), batch.counts["loss"])}


class Noisy(Sums, kind="mutant-noisy"):
    """Drops losses at random, in evaluation too."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(F.dropout(self.losses(model, batch), 0.5).sum(), batch.counts["loss"])}


class Bare(Sums, kind="mutant-bare"):
    """Gives a tensor and no terms."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return self.losses(model, batch).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (Mean(), "parts = whole", "the sum of 'loss' over a batch differs from that over its rows"),
        (Padding(), "ignored labels", "labels of −100 change the sum of 'loss'"),
        (Rows(), "terms", "'loss' is over 4 items, and `counts` says 22"),
        (Logarithm(), "gradients", "are not finite"),
        (Detached(), "gradients", "the loss does not depend on the model's parameters"),
        (Noisy(), "same twice", "differs when the batch is evaluated again"),
        (Bare(), "terms", "it has to give terms by name"),
    ],
    ids=lambda value: value.kind if isinstance(value, Objective) else "",
)
def test_wrong_objectives_fail(part: Objective, failure: str, reason: str) -> None:
    reasons = {failed.name: failed.reason for failed in check(part).failures}
    assert reason in reasons.get(failure, ""), reasons
