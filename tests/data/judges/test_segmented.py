from __future__ import annotations

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from qkv.core.batch import IGNORE, Batch
from qkv.data.judges.segmented import Segmented, ious
from qkv.data.tasks.segment import Place
from qkv.look.pictures import draw

PLAIN = (0.0,) * 3, (1.0,) * 3


def batch_of(labels: Tensor, places: list[Place], where: str = "a.png") -> Batch:
    pixels = torch.rand(len(labels), 3, *labels.shape[1:])
    return Batch({"ids": pixels}, labels, texts=tuple({"where": where, "place": place} for place in places))


def test_the_measures_are_those_of_a_plain_count() -> None:
    truth, made = torch.randint(3, (4, 8, 10)), torch.randint(3, (4, 8, 10))
    truth[0, :3] = IGNORE
    judge = Segmented(("a", "b", "c"), *PLAIN)
    scores = torch.nn.functional.one_hot(made, 3).movedim(-1, 1).float()
    places = [Place(0, 0, (8, 10))] * 2
    for rows in (slice(0, 2), slice(2, 4)):
        judge.add(scores[rows], batch_of(truth[rows], places))
    counted = truth != IGNORE
    shares = []
    for k in range(3):
        mine, theirs = (made == k) & counted, (truth == k) & counted
        shares.append(((mine & theirs).sum() / (mine | theirs).sum()).item())
    found = judge.found()
    assert found["miou"].value == pytest.approx(sum(shares) / 3) and "b " in found["miou"].how
    assert found["pixel_accuracy"].value == pytest.approx(
        ((made == truth) & counted).sum().item() / counted.sum().item()
    )


def test_a_class_that_is_nowhere_is_left_out() -> None:
    found = ious(np.array([[6, 2, 0], [0, 4, 0], [0, 0, 0]]))
    assert found[:2].tolist() == [6 / 8, 4 / 6] and math.isnan(found[2])


def test_scores_of_patches_become_scores_of_pixels() -> None:
    judge = Segmented(("a", "b"), *PLAIN)
    truth = torch.zeros(1, 8, 8, dtype=torch.int64)
    truth[:, :, 4:] = 1
    scores = torch.tensor([[[[1.0, 0], [1, 0]], [[0, 1], [0, 1]]]])
    judge.add(scores, batch_of(truth, [Place(0, 0, (8, 8))]))
    assert judge.found()["miou"].value == 1.0


def test_tiles_are_put_together_in_the_picture_that_is_shown() -> None:
    judge = Segmented(("a", "b"), *PLAIN)
    labels = torch.ones(2, 4, 6, dtype=torch.int64)
    labels[0, :, 4:], labels[1, :, :2] = IGNORE, IGNORE
    scores = torch.zeros(2, 2, 4, 6)
    scores[:, 1] = 1.0
    judge.add(scores, batch_of(labels, [Place(0, 0, (4, 8)), Place(0, 2, (4, 8))]))
    (sample,) = judge.samples(3)
    assert sample["source"] == "a.png" and sample["output"] == "mean IoU 1.000"
    for key in ("image", "truth", "made"):
        assert Image.open(io.BytesIO(base64.b64decode(sample["picture"][key]))).size == (8, 4)
    truth = Image.open(io.BytesIO(base64.b64decode(sample["picture"]["truth"])))
    assert set(np.asarray(truth).ravel().tolist()) == {1}
    page = str(draw(sample["picture"]))
    assert page.count("<img") == 3 and page.count("data:image/png;base64,") == 3 and "prediction" in page
