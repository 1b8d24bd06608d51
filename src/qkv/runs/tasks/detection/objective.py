"""DETR's objective (Carion et al. 2020): Hungarian matching, cross-entropy of classes, L1 and GIoU of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.batch import IGNORE, Batch, Term, Terms
from ....core.metrics.display import register
from ....core.optional_libraries import need
from ....core.ranks import current_rows, idle
from ....nn.layers.boxes import corners, overlap
from ....nn.layers.losses import at_least_fp32
from ....nn.models.heads.vision import Objects
from ....training.objective import Objective

register("class", "Loss of classes")
register("box", "Loss of boxes")
register("giou", "Loss of boxes' overlap")

Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Matched(NamedTuple):
    """Matched detections and objects: the row of each pair, and their indices in it."""

    rows: Int[Tensor, " n"]
    detections: Int[Tensor, " n"]
    objects: Int[Tensor, " n"]


class Detection(Objective, kind="detection"):
    """class_weight · CE + box_weight · |b − b̂|₁ + giou_weight · (1 − GIoU(b, b̂)), over detections b̂ that are matched with
    the objects b of their image (Carion et al. 2020, §3.1). The matching minimizes the sum of

        −class_cost · p̂(c) + box_cost · |b − b̂|₁ − giou_cost · GIoU(b, b̂)

    (Kuhn 1955, the Hungarian method). Unmatched detections learn the class "no object", with the weight `no_object`.

    The batch's targets are `classes` (B, M), −100 for padding, and `boxes` (B, M, 4), (center x, center y, width, height)
    as shares of the image; `box` and `giou` are divided by the number of objects. `class` is the weighted mean over all
    detections of the batch, and counts images, so each has the same weight.
    """

    class_cost: Weight = 1.0
    box_cost: Weight = 5.0
    giou_cost: Weight = 2.0
    class_weight: Weight = 1.0
    box_weight: Weight = 5.0
    giou_weight: Weight = 2.0
    no_object: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        outputs = model(**batch.inputs)
        if not isinstance(outputs, Objects) or not {"classes", "boxes"} <= batch.targets.keys():
            raise ValueError(
                "the objective 'detection' needs a model with the head 'detector', and batches of the task 'detect'"
            )
        outputs = Objects(at_least_fp32(outputs.logits), at_least_fp32(outputs.boxes))
        classes, boxes = batch.targets["classes"], at_least_fp32(batch.targets["boxes"])
        pairs = self.match(outputs, classes, boxes)
        predicted, true = outputs.boxes[pairs.rows, pairs.detections], boxes[pairs.rows, pairs.objects]
        giou = overlap(corners(predicted), corners(true))[1]
        counts = self.counts(batch)
        class_loss = self._class_loss(outputs.logits, classes, pairs) * counts["class"]
        return {
            "class": Term(class_loss, counts["class"], weight=self.class_weight),
            "box": Term((predicted - true).abs().sum(), counts["box"], weight=self.box_weight),
            "giou": Term((1 - giou).sum(), counts["giou"], weight=self.giou_weight),
        }

    def _class_loss(self, logits: Float[Tensor, "B n C"], classes: Int[Tensor, "B M"], pairs: Matched) -> Tensor:
        """Return the weighted mean cross-entropy of a batch; "no object" has the weight `no_object`, other classes 1. On
        several ranks, return this rank's share of the mean."""
        none = logits.shape[-1] - 1
        labels = torch.full(logits.shape[:2], none, dtype=torch.int64, device=logits.device)
        labels[pairs.rows, pairs.detections] = classes[pairs.rows, pairs.objects]
        weight = torch.ones(none + 1, device=logits.device)
        weight[none] = self.no_object
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), weight)
        own = torch.stack([weight[labels].sum(), weight.new_tensor(len(labels))])
        weights, images = own / current_rows().sum(own * (0.0 if idle() else 1.0))
        return loss * (weights / images)  # means of several ranks, weighted by images, sum to the mean of all

    @torch.no_grad()
    def match(self, outputs: Objects, classes: Int[Tensor, "B M"], boxes: Float[Tensor, "B M 4"]) -> Matched:
        """Match detections and objects of each image at the least cost: as many pairs as the fewer of the two."""
        need("matching detections with objects", "scipy")
        from scipy.optimize import linear_sum_assignment

        indices = classes.clamp(min=0)[:, None].expand(-1, outputs.logits.shape[1], -1)
        likely = outputs.logits.softmax(-1).gather(2, indices)
        giou = overlap(corners(outputs.boxes)[:, :, None], corners(boxes)[:, None])[1]
        distance = torch.cdist(outputs.boxes, boxes, p=1)
        cost = self.box_cost * distance - self.class_cost * likely - self.giou_cost * giou
        cost = cost.nan_to_num(nan=1e6, posinf=1e6, neginf=1e6).cpu()  # the loss itself shows that the step is bad
        pairs: list[Sequence[Tensor]] = []
        for row, (costs, real) in enumerate(zip(cost, (classes != IGNORE).cpu(), strict=True)):
            numbers = real.nonzero()[:, 0]
            detections, objects = map(torch.from_numpy, linear_sum_assignment(costs[:, numbers].numpy()))
            pairs.append((torch.full_like(detections, row), detections, numbers[objects]))
        return Matched(*(torch.cat(parts).to(classes.device) for parts in zip(*pairs, strict=True)))
