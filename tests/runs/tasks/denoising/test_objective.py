"""Objectives of denoising: the cross-entropy of the decoder's tokens, and batches without a target."""

from __future__ import annotations

import pytest
import torch
from pretraining_runs import batch_of
from torch.nn.functional import cross_entropy

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.training.objective import Objective


def test_the_loss_is_the_cross_entropy_of_the_targets() -> None:
    model, batch = batch_of("t5")
    terms = Objective.from_dict({"kind": "span-corruption"})(model.eval(), batch)
    logits, labels = model(**batch.inputs), batch.labels
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(terms["loss"].sum, expected, rtol=1e-4, atol=1e-4)
    assert terms["loss"].count == int((labels != IGNORE).sum())


@pytest.mark.parametrize("kind", ["span-corruption", "denoising"])
def test_a_batch_without_a_target_is_told(kind: str) -> None:
    batch = Batch({"ids": torch.zeros(1, 3, dtype=torch.long), "layout": Layout.full(3)}, None, {"loss": 3})
    with pytest.raises(ValueError, match=f"the objective '{kind}' needs batches with a target"):
        Objective.from_dict({"kind": kind})(torch.nn.Identity(), batch)
