"""Correlations of cosines with scores, and retrieval of positive pairs."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.text_similarity.metric import SimilarityMetric


def test_cosines_go_with_scores_or_find_their_own() -> None:
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0], [0.0, 3.0]])
    rows, texts = torch.tensor([[0, 1], [2, 3], [4, 5]]), tuple({"text": c} for c in "abc")
    metric = SimilarityMetric()
    metric.update(vectors, Batch({}, torch.tensor([1.0, 0.0, 0.5]), targets={"rows": rows}, texts=texts))
    assert metric.compute()["spearman"].value == pytest.approx(1)
    assert [s["output"] for s in metric.samples(3)] == ["1.00", "-0.71", "0.71"]
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "absolute_error"
    assert [one["source"] for one in extremes.best + extremes.worst] == ["a", "c", "b"]
    without = SimilarityMetric()
    without.update(vectors, Batch({}, None, targets={"rows": rows}, texts=texts))
    assert without.compute()["accuracy"].value == pytest.approx(1 / 3)
    extremes = without.extremes()
    assert extremes is not None and extremes.by == "cosine"
    assert [one["source"] for one in extremes.best + extremes.worst] == ["a", "c", "b"]


def test_positive_pairs_are_retrieved_among_all_of_the_split() -> None:
    """Of four texts in two batches each finds its own pair, but for the last, whose own pair is the least similar."""
    angles = torch.tensor([0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 2.9, -0.3])
    vectors, rows = torch.stack([angles.cos(), angles.sin()], -1), torch.tensor([[0, 1], [2, 3]])
    metric = SimilarityMetric()
    for start, names in ((0, "ab"), (4, "cd")):
        texts = tuple({"text": name, "pair": name.upper()} for name in names)
        metric.update(vectors[start : start + 4], Batch({}, None, targets={"rows": rows}, texts=texts))
    found = metric.compute()
    assert found["mrr"].value == pytest.approx((1 + 1 + 1 + 1 / 4) / 4)
    assert found["recall@1"].value == 3 / 4 and found["recall@5"].value == 1
    assert found["mrr"].details == "queries:4|documents:4|score:cosine"
