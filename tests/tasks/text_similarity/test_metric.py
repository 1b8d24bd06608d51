"""Correlations of cosines with scores, and retrieval of positive pairs."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.tasks.text_similarity.metric import SimilarityMetric


def test_cosines_go_with_scores_or_find_their_own() -> None:
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0], [0.0, 3.0]])
    rows, texts = torch.tensor([[0, 1], [2, 3], [4, 5]]), tuple({"text": c} for c in "abc")
    metric = SimilarityMetric()
    metric.update(vectors, Batch({}, torch.tensor([1.0, 0.0, 0.5]), targets={"rows": rows}, texts=texts))
    assert metric.compute()["spearman"].value == pytest.approx(1)
    assert [s["output"] for s in metric.samples(3)] == ["1.00", "-0.71", "0.71"]
    without = SimilarityMetric()
    without.update(vectors, Batch({}, None, targets={"rows": rows}, texts=texts))
    assert without.compute()["accuracy"].value == pytest.approx(1 / 3)
