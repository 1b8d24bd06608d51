"""Losses by which parts are ranked: sums and means as PyTorch's cross-entropy gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from qkv.lab.prune.examples import loss_over, mean_loss, repeated, sum_loss
from qkv.runs.inference.held_out import batches, recipe_of
from qkv.runs.inference.run import load


def test_losses_are_cross_entropies_of_the_labels(trained_lm: Path) -> None:
    run = load(trained_lm, device="cpu")
    recipe, some = recipe_of(run), batches(run, "validation", 4)
    assert list(repeated(some, len(some) + 1)) == [*some, some[0]]
    total = count = 0.0
    for batch in some:
        assert batch.labels is not None
        logits, labels = run.model(**batch.inputs).flatten(0, 1), batch.labels.flatten()
        sums = float(cross_entropy(logits, labels, ignore_index=-100, reduction="sum"))
        assert float(sum_loss(recipe)(run.model, batch)) == pytest.approx(sums, rel=1e-5)
        mean = float(cross_entropy(logits, labels, ignore_index=-100))
        assert float(mean_loss(recipe)(run.model, batch)) == pytest.approx(mean, rel=1e-5)
        total, count = total + sums, count + int((labels != -100).sum())
    assert loss_over(recipe, run.model, some) == pytest.approx(total / count, rel=1e-5)
    assert not torch.is_inference_mode_enabled()
