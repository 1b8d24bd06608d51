"""Accuracy and samples of multiple choice."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.multiple_choice.metric import ChoiceMetric


def test_the_candidate_with_the_highest_score_is_chosen() -> None:
    metric = ChoiceMetric()
    texts = ({"text": "p", "choices": ["x", "y"]}, {"text": "q", "choices": ["u", "v", "w"]})
    rows = torch.tensor([[0, 1, -1], [2, 3, 4]])
    metric.update(
        torch.tensor([[-5.0], [-4.0], [0.0], [3.0], [2.0]]),
        Batch({}, torch.tensor([1, 2]), targets={"rows": rows}, texts=texts),
    )
    assert metric.compute()["accuracy"].value == 0.5
    assert metric.samples(2) == [
        {"source": "p", "target": "y", "output": "y"},
        {"source": "q", "target": "w", "output": "v"},
    ]
    extremes = metric.extremes()
    assert extremes is not None and [(one["source"], one["target"]) for one in extremes.worst] == [("q", "w")]
    assert extremes.best[0]["score"] == pytest.approx(torch.tensor([-5.0, -4.0]).softmax(0)[1].item())
