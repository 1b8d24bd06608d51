from __future__ import annotations

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from qkv.core.batch import IGNORE, Batch
from qkv.core.metrics.intersection_over_union import ious
from qkv.look.pictures import draw
from qkv.runs.tasks.segmentation.metric import SegmentationMetric, Views, seen_in
from qkv.runs.tasks.segmentation.task import Place

PLAIN = (0.0,) * 3, (1.0,) * 3


def batch_of(labels: Tensor, places: list[Place], where: str = "a.png") -> Batch:
    pixels = torch.rand(len(labels), 3, *labels.shape[1:])
    return Batch({"ids": pixels}, labels, texts=tuple({"where": where, "place": place} for place in places))


def test_the_measures_match_a_plain_count() -> None:
    truth, made = torch.randint(3, (4, 8, 10)), torch.randint(3, (4, 8, 10))
    truth[0, :3] = IGNORE
    metric = SegmentationMetric(("a", "b", "c"), *PLAIN)
    scores = torch.nn.functional.one_hot(made, 3).movedim(-1, 1).float()
    places = [Place(0, 0, (8, 10))] * 2
    for rows in (slice(0, 2), slice(2, 4)):
        metric.update(scores[rows], batch_of(truth[rows], places))
    counted = truth != IGNORE
    shares = []
    for k in range(3):
        mine, theirs = (made == k) & counted, (truth == k) & counted
        shares.append(((mine & theirs).sum() / (mine | theirs).sum()).item())
    found = metric.compute()
    assert found["miou"].value == pytest.approx(sum(shares) / 3) and "b " in found["miou"].details
    assert found["pixel_accuracy"].value == pytest.approx(
        ((made == truth) & counted).sum().item() / counted.sum().item()
    )


def test_a_class_that_is_nowhere_is_left_out() -> None:
    found = ious(np.array([[6, 2, 0], [0, 4, 0], [0, 0, 0]]))
    assert found[:2].tolist() == [6 / 8, 4 / 6] and math.isnan(found[2])


def test_scores_of_patches_become_scores_of_pixels() -> None:
    metric = SegmentationMetric(("a", "b"), *PLAIN)
    truth = torch.zeros(1, 8, 8, dtype=torch.int64)
    truth[:, :, 4:] = 1
    scores = torch.tensor([[[[1.0, 0], [1, 0]], [[0, 1], [0, 1]]]])
    metric.update(scores, batch_of(truth, [Place(0, 0, (8, 8))]))
    assert metric.compute()["miou"].value == 1.0


def test_tiles_are_put_together_in_the_picture_that_is_shown() -> None:
    metric = SegmentationMetric(("a", "b"), *PLAIN)
    labels = torch.ones(2, 4, 6, dtype=torch.int64)
    labels[0, :, 4:], labels[1, :, :2] = IGNORE, IGNORE
    scores = torch.zeros(2, 2, 4, 6)
    scores[:, 1] = 1.0
    metric.update(scores, batch_of(labels, [Place(0, 0, (4, 8)), Place(0, 2, (4, 8))]))
    (sample,) = metric.samples(3)
    assert sample["source"] == "a.png" and sample["output"] == "mean IoU 1.000"
    for key in ("image", "truth", "made"):
        assert Image.open(io.BytesIO(base64.b64decode(sample["picture"][key]))).size == (8, 4)
    truth = Image.open(io.BytesIO(base64.b64decode(sample["picture"]["truth"])))
    assert set(np.asarray(truth).ravel().tolist()) == {1}
    page = str(draw(sample["picture"]))
    assert page.count("<img") == 3 and page.count("data:image/png;base64,") == 3 and "prediction" in page


class Sees(nn.Module):
    """Class 1 where a pixel is bright, the surer the nearer to the left edge: it has a sense of orientation."""

    def forward(self, ids: Tensor) -> Tensor:
        bright = ids[:, :1] - 0.5
        return torch.cat([-bright, bright], 1) / (1 + torch.arange(ids.shape[3]))


def test_views_are_put_back_upright() -> None:
    batch = batch_of(torch.zeros(2, 4, 4, dtype=torch.int64), [Place(0, 0, (4, 4))] * 2)
    seen: list[tuple[Tensor, Tensor]] = []
    model = Sees()
    model.register_forward_hook(lambda m, given, kwargs, out: seen.append((kwargs["ids"], out)), with_kwargs=True)
    made = seen_in(8, model, batch)
    assert len({tuple(ids.flatten().tolist()) for ids, _ in seen}) == 8  # all of them differ
    assert torch.equal(made.argmax(1) == 1, batch.inputs["ids"][:, 0] > 0.5)  # and pixels are where they were
    pixels, wanted = batch.inputs["ids"], []
    for turns in range(4):
        for across in (False, True):
            view = torch.rot90(pixels, turns, (2, 3))
            said = model(ids=view.flip(3) if across else view).softmax(1)
            wanted.append(torch.rot90(said.flip(3) if across else said, -turns, (2, 3)))
    torch.testing.assert_close(made, torch.stack(wanted).mean(0))


@pytest.mark.parametrize("views", [1, 2, 4])
def test_views_of_a_picture_that_is_no_square(views: Views) -> None:
    batch = batch_of(torch.zeros(2, 4, 6, dtype=torch.int64), [Place(0, 0, (4, 6))] * 2)
    made, model = seen_in(views, Sees(), batch), Sees()
    if views == 1:
        assert torch.equal(made, model(batch.inputs["ids"]))
    across = model(batch.inputs["ids"].flip(3)).softmax(1).flip(3)
    if views == 2:
        torch.testing.assert_close(made, (model(batch.inputs["ids"]).softmax(1) + across) / 2)
    assert made.shape == (2, 2, 4, 6)


def test_the_best_and_the_worst_pictures_are_of_all_pictures() -> None:
    metric = SegmentationMetric(("a", "b"), *PLAIN)
    for n in range(40):  # of picture n, n of 40 columns are wrong
        labels = torch.zeros(2, 4, 20, dtype=torch.int64)
        made = (torch.arange(40) < n).long().reshape(2, 1, 20).expand(2, 4, 20)
        scores = torch.nn.functional.one_hot(made, 2).movedim(-1, 1).float()
        metric.update(scores, batch_of(labels, [Place(0, 0, (4, 40)), Place(0, 20, (4, 40))], f"{n}.png"))
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "miou"
    assert [sample["source"] for sample in extremes.best] == [f"{n}.png" for n in range(5)]
    assert [sample["source"] for sample in extremes.worst] == [f"{n}.png" for n in range(39, 34, -1)]
    assert [sample["source"] for sample in metric.samples(20)] == [f"{n}.png" for n in range(16)]
    assert extremes.worst[0]["score"] == pytest.approx(1 / 40 / 2)  # of class a; b is in no truth
