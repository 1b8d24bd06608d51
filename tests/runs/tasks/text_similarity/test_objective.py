"""Objectives of sentence vectors, computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.core.batch import Batch
from qkv.runs.tasks.multiple_choice.task import Choose
from qkv.runs.tasks.text_similarity.objective import Contrastive, CosineObjective


class Says(nn.Module):
    """A model that says what it is given."""

    def forward(self, ids: Tensor) -> Tensor:
        return ids


def batch(outputs: Tensor, rows: Any, labels: Tensor | None) -> Batch:
    return Batch({"ids": outputs}, labels, {"loss": len(rows)}, targets={"rows": torch.tensor(rows)})


def test_cosines_are_drawn_to_the_scores() -> None:
    vectors = torch.randn(6, 8, dtype=torch.float64).float()
    labels = torch.tensor([0.0, 0.5, 1.0])
    term = CosineObjective()(Says(), batch(vectors, [[0, 1], [2, 3], [4, 5]], labels))["loss"]
    cosines = F.cosine_similarity(vectors[::2], vectors[1::2])
    torch.testing.assert_close(term.sum, (cosines - labels).square().sum())
    with pytest.raises(ValueError, match="learns from scores, and these pairs have none"):
        CosineObjective()(Says(), batch(vectors, [[0, 1]], None))


@pytest.mark.parametrize("both", [False, True])
def test_a_text_is_told_from_all_others_of_the_batch(both: bool) -> None:
    vectors = torch.randn(8, 5)
    rows = [[2 * i, 2 * i + 1] for i in range(4)]
    term = Contrastive(temperature=0.5, both=both)(Says(), batch(vectors, rows, None))["loss"]
    expected = 0.0
    for i in range(4):
        like = [F.cosine_similarity(vectors[2 * i], vectors[2 * j + 1], dim=0) / 0.5 for j in range(4)]
        back = [F.cosine_similarity(vectors[2 * j], vectors[2 * i + 1], dim=0) / 0.5 for j in range(4)]
        one = -float(torch.stack(like).log_softmax(0)[i])
        expected += (one - float(torch.stack(back).log_softmax(0)[i])) / 2 if both else one
    assert float(term.sum) == pytest.approx(expected, rel=1e-5) and term.count == 4
    assert Contrastive.scope == "step"


def test_a_model_that_gives_something_else_is_told_what_head_to_take() -> None:
    hidden = torch.zeros(2, 3, 4)
    with pytest.raises(
        ValueError, match=r"needs a vector for each text, and the model gives \(2, 3, 4\); .*sentence-vector"
    ):
        Contrastive()(Says(), batch(hidden, [[0, 1]], None))
    with pytest.raises(ValueError, match=r"one score for each candidate, and the model gives \(2, 3, 4\)"):
        Choose()(Says(), batch(hidden, [[0, 1]], torch.tensor([0])))
    with pytest.raises(ValueError, match="needs pairs of texts; give the task similarity"):
        CosineObjective()(Says(), batch(hidden, [[0]], torch.tensor([0.0])))
