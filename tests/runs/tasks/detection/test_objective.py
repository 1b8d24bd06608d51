from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import qkv
from qkv.core.batch import IGNORE, Batch
from qkv.core.ranks import Alone, BatchSplit, splitting
from qkv.nn.layers.boxes import corners, overlap
from qkv.nn.models.heads.vision import Objects
from qkv.runs.tasks.detection.objective import Detection
from qkv.training.gradients.accumulation import weighed


class Says(nn.Module):
    """A model that says what it is told."""

    def __init__(self, found: Objects) -> None:
        super().__init__()
        self.found = found

    def forward(self, ids: Tensor) -> Objects:
        return self.found


def batch_of(objects: list[list[int]], seed: int = 0) -> Batch:
    """Images with objects of these classes, at random places."""
    random = torch.Generator().manual_seed(seed)
    most = max(map(len, objects))
    classes = torch.full((len(objects), most), IGNORE)
    boxes = torch.ones(len(objects), most, 4)
    for row, named in enumerate(objects):
        classes[row, : len(named)] = torch.tensor(named, dtype=torch.int64)
        boxes[row, : len(named)] = 0.1 + 0.4 * torch.rand(len(named), 4, generator=random)
    n = sum(map(len, objects))
    targets = {"classes": classes, "boxes": boxes}
    return Batch(
        {"ids": torch.zeros(len(objects), 1)}, None, {"class": len(objects), "box": n, "giou": n}, targets=targets
    )


def said(rows: int, detections: int, labels: int, seed: int = 1) -> Objects:
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, detections, labels + 1, generator=random)
    boxes = 0.1 + 0.8 * torch.rand(rows, detections, 4, generator=random)
    return Objects(logits.requires_grad_(), boxes.requires_grad_())


@pytest.mark.parametrize("objects", [[[0, 2, 1], [1], [3, 3]], [[], [1, 0]], [[0, 1, 2, 3, 0, 1, 2], [2]]])
def test_the_loss_and_its_gradients_match_transformers(objects: list[list[int]]) -> None:
    theirs = pytest.importorskip("transformers.loss.loss_for_object_detection")
    found, batch = said(len(objects), 5, 4), batch_of(objects)
    config = type("Config", (), {"class_cost": 1, "bbox_cost": 5, "giou_cost": 2, "eos_coefficient": 0.1})
    config.bbox_loss_coefficient, config.giou_loss_coefficient, config.num_labels = 5, 2, 4
    config.auxiliary_loss = False
    labels = [
        {"class_labels": classes[classes != IGNORE], "boxes": boxes[classes != IGNORE]}
        for classes, boxes in zip(batch.targets["classes"], batch.targets["boxes"], strict=True)
    ]
    wanted, parts, _ = theirs.ForObjectDetectionLoss(found.logits, labels, "cpu", found.boxes, config)
    wanted_grads = torch.autograd.grad(wanted, list(found))

    terms = Detection()(Says(found), batch)
    loss = weighed(terms, batch.counts)
    torch.testing.assert_close(loss, wanted)
    for name, key in (("class", "loss_ce"), ("box", "loss_bbox"), ("giou", "loss_giou")):
        torch.testing.assert_close(terms[name].sum / max(terms[name].count, 1), parts[key])
    torch.testing.assert_close(torch.autograd.grad(loss, list(found)), wanted_grads)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 50))
def test_no_other_matching_costs_less(detections: int, objects: int, seed: int) -> None:
    found, batch = said(1, detections, 3, seed), batch_of([[k % 3 for k in range(objects)]], seed)
    classes, boxes = batch.targets["classes"], batch.targets["boxes"]
    pairs = Detection().match(found, classes, boxes)
    likely = found.logits.softmax(-1)[0][:, classes[0]]
    apart = (found.boxes[0][:, None] - boxes[0]).abs().sum(-1)
    cost = 5 * apart - likely - 2 * overlap(corners(found.boxes[0])[:, None], corners(boxes[0]))[1]
    wide = cost if detections >= objects else cost.T
    least = min(
        sum(wide[row, column].item() for column, row in enumerate(rows))
        for rows in permutations(range(len(wide)), wide.shape[1])
    )
    assert len(pairs.rows) == min(detections, objects)
    assert cost[pairs.detections, pairs.objects].sum().item() == pytest.approx(least, abs=1e-4)


def test_what_is_not_finite_is_matched_and_seen_in_the_loss() -> None:
    found, batch = said(1, 3, 2), batch_of([[0, 1]])
    found = found._replace(boxes=torch.full_like(found.boxes, torch.nan))
    assert not weighed(Detection()(Says(found), batch), batch.counts).isfinite()


def test_images_without_objects_learn_that_there_is_none() -> None:
    found, batch = said(2, 3, 2), batch_of([[], []])
    terms = Detection()(Says(found), batch)
    loss = weighed(terms, batch.counts)
    wanted = torch.nn.functional.cross_entropy(found.logits.flatten(0, 1), torch.full((6,), 2))
    torch.testing.assert_close(loss, wanted)
    assert terms["box"].count == 0 and terms["box"].sum.item() == 0


def test_a_model_or_a_task_that_knows_no_objects_is_told() -> None:
    model = qkv.build(qkv.preset("vit-base-16", image=(16, 16), patch=(8, 8), d_model=8, n_layers=1, n_heads=2, d_ff=8))
    batch = batch_of([[0]])
    with pytest.raises(ValueError, match="the head 'detector'"):
        Detection()(model, Batch({"ids": torch.zeros(1, 3, 16, 16)}, counts=batch.counts, targets=batch.targets))


def test_ranks_with_other_images_sum_to_the_loss_of_all() -> None:
    """Rank 0 has an image with three objects, rank 1 two images with one."""
    objects, found = [[0, 2, 1], [1], []], said(3, 5, 4)
    whole = Detection()(Says(found), batch_of(objects))["class"]
    parts = [(objects[:1], slice(0, 1)), (objects[1:], slice(1, 3))]
    # each matched detection has the weight 1, each other one 0.1
    totals = torch.tensor([4 + 0.1 * 11, 3.0])
    summed = torch.zeros(())
    for own, rows in parts:
        ranks = SumsTo(totals)
        with splitting(BatchSplit(ranks, ranks)):
            seen = Objects(found.logits[rows], found.boxes[rows])
            batch = batch_of(objects)
            targets = {name: values[rows] for name, values in batch.targets.items()}
            counts = {"class": len(own), "box": 1, "giou": 1}
            term = Detection()(Says(seen), replace(batch, targets=targets, counts=counts))["class"]
        summed = summed + term.sum
    torch.testing.assert_close(summed / 3, whole.sum / 3)


class SumsTo(Alone):
    """One of two ranks, whose sums are known."""

    size = 2

    def __init__(self, total: Tensor) -> None:
        self.total = total

    def sum(self, value: Tensor) -> Tensor:
        return self.total
