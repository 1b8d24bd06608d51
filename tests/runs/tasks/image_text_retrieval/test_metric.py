"""Recall of texts found for images and images for texts, also where several images have one text."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.nn.models.dual_encoder import Similarities, unit
from qkv.runs.tasks.image_text_retrieval.metric import RetrievalMetric, recalls


def test_recalls_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.2], [0.8, 0.3, 0.1], [0.2, 0.4, 0.3]])
    values = {name: one.value for name, one in recalls(scores, ["a", "b", "c"]).items()}
    assert values["text_recall@1"] == pytest.approx(1 / 3)  # only the first image finds its own text first
    assert values["image_recall@1"] == pytest.approx(2 / 3)  # "a" and "c" find theirs
    assert values["recall@1"] == pytest.approx(1 / 2)
    assert values["text_recall@5"] == values["image_recall@5"] == 1


def test_every_image_of_a_text_is_right() -> None:
    scores = torch.tensor([[0.1, 0.1, 0.5], [0.9, 0.9, 0.2], [0.3, 0.3, 0.8]])
    values = {name: one.value for name, one in recalls(scores, ["a", "a", "c"]).items()}
    assert values["text_recall@1"] == pytest.approx(2 / 3)
    assert values["image_recall@1"] == 1  # the second image, which has the text "a" too, is nearest to it


def test_equal_vectors_find_nothing() -> None:
    values = recalls(torch.ones(4, 4), list("abcd"))
    assert values["recall@1"].value == 0


def test_the_metric_collects_batches_and_draws_a_matrix() -> None:
    metric = RetrievalMetric((0.5,) * 3, (0.5,) * 3)
    vectors = unit(torch.randn(6, 4))

    class Model(torch.nn.Module):
        def forward(self, ids: torch.Tensor, pixels: torch.Tensor) -> Similarities:
            return Similarities(vectors[ids], vectors[ids], torch.tensor(1.0), None)

    for rows in ([0, 1, 2, 3], [4, 5]):
        about = tuple({"where": "", "text": f"text {i}", "image": ""} for i in rows)
        metric.evaluate(
            Model(), Batch({"ids": torch.tensor(rows), "pixels": torch.zeros(len(rows), 3, 8, 8)}, texts=about)
        )
    assert metric.compute()["recall@1"].value == 1
    matrix, first, *_ = metric.samples(4)
    assert matrix["picture"]["kind"] == "similarities" and len(matrix["picture"]["images"]) == 6
    assert first["output"] == first["target"] == "text 0"
