"""Bug 11 of those that others shipped: ignored labels."""

from __future__ import annotations

import pytest
import torch
from every import call, every_family
from small import (
    gradients,
    ids,
    model,
)

from qkv.core.batch import IGNORE


@every_family
@pytest.mark.parametrize("fused", [True, False])
def test_bug_11_all_labels_ignored_is_zero_and_no_nan(family: str, fused: bool) -> None:
    """A batch whose labels are all −100 has a loss of 0, gradients of 0, and a step over it changes nothing."""
    built = model(family, head={"kind": "language-model", "fused": fused})
    sums = call(built, ids(2, 5), labels=torch.full((2, 5), IGNORE), label_smoothing=0.1)
    assert (float(sums.loss), float(sums.nll), int(sums.n_labels)) == (0.0, 0.0, 0)
    sums.loss.backward()
    assert all(bool((g == 0).all()) for g in gradients(built).values())
