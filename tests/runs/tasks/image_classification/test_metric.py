"""Accuracy and top-5 accuracy of image classification, and the pictures of samples."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from qkv.core.batch import Batch
from qkv.look.pictures import draw
from qkv.runs.tasks.image_classification.metric import ImageClassMetric

NAMES = tuple("abcdefg")


def pictures(count: int, name: str = "image") -> list[dict[str, Any]]:
    shape = (3, 4, 4) if name == "image" else (2, 3, 4, 4)
    return [{name: np.full(shape, i, np.uint8), "where": f"picture {i}"} for i in range(count)]


@pytest.mark.parametrize("name", ["image", "video"])
def test_accuracy_and_the_first_five(name: str) -> None:
    metric, scores = ImageClassMetric(NAMES), torch.arange(7.0).flip(0).expand(7, 7)  # a first, b second, …, g last
    metric.update(scores, Batch({}, torch.arange(7), texts=tuple(pictures(7, name))))
    found = metric.compute()
    assert found["accuracy"].value == pytest.approx(1 / 7) and found["top5"].value == pytest.approx(5 / 7)
    samples = metric.samples(3)
    assert [s["output"] for s in samples] == ["a"] * 3 and samples[0]["target"] in NAMES
    json.dumps(samples)
    drawn = str(draw(samples[0]["picture"]))
    assert drawn.count("<img") == (1 if name == "image" else 2) and ">a: 63 %</text>" in drawn


def test_five_classes_have_no_first_five() -> None:
    metric = ImageClassMetric(NAMES[:5])
    metric.update(torch.eye(5), Batch({}, torch.arange(5), texts=tuple(pictures(5))))
    assert "top5" not in metric.compute() and metric.compute()["accuracy"].value == 1


def test_the_best_and_the_worst_pictures_are_drawn_with_their_classes() -> None:
    metric = ImageClassMetric(NAMES[:5])
    outputs = torch.eye(5) * torch.tensor([5.0, 4, 3, 2, -1])[:, None]
    metric.update(outputs, Batch({}, torch.arange(5), texts=tuple(pictures(5))))
    extremes = metric.extremes()
    assert extremes is not None and json.dumps(extremes.worst)
    assert [one["source"] for one in extremes.best] == [f"picture {i}" for i in range(3)]
    assert [one["source"] for one in extremes.worst] == ["picture 4", "picture 3"]
    assert "<img" in draw(extremes.worst[0]["picture"])
