"""The objective of multiple choice, computed by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.runs.tasks.multiple_choice.task import Choose


class Says(nn.Module):
    """A model that says what it is given."""

    def forward(self, ids: Tensor) -> Tensor:
        return ids


def batch(outputs: Tensor, rows: Any, labels: Tensor | None) -> Batch:
    return Batch({"ids": outputs}, labels, {"loss": len(rows)}, targets={"rows": torch.tensor(rows)})


def test_candidates_meet_in_a_softmax() -> None:
    scores = torch.tensor([[1.0], [2.0], [0.5], [0.0], [-1.0]], requires_grad=True)
    term = Choose()(Says(), batch(scores, [[0, 1, -1], [2, 3, 4]], torch.tensor([1, 0])))["loss"]
    a, b = scores[:2, 0].log_softmax(0)[1], scores[2:, 0].log_softmax(0)[0]
    torch.testing.assert_close(term.sum, -(a + b))
    assert term.count == 2
    term.sum.backward()
    assert scores.grad is not None and scores.grad.isfinite().all() and scores.grad.abs().min() > 0
