"""Average precision of detected objects, as COCO computes it (mAP, Lin et al. 2014), with pictures of samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ....core.batch import IGNORE, Batch
from ....core.metrics.average_precision import average_precision
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....data.media.images import denormalized
from ....data.media.png import class_color, png
from ....nn.layers.boxes import corners, overlap
from ....nn.models.heads.vision import Objects

register("box_f1", "F1 of objects at IoU 0.5", "fraction", higher_is_better=True, part=True)

_KEPT = 16  # pictures kept to be shown
SHOWN = 0.5  # probability of a detection from which on it is shown
_SAME = 0.5  # IoU with a true object from which on a detection of its class is right
_MOST = 100  # detections of a picture, the most probable ones, that COCO counts


class Detections(NamedTuple):
    """Detected objects of a picture: the most probable class of each, its edges (left, top, right, bottom) as shares of the
    picture, and the probability of the class."""

    classes: NDArray[np.int64]
    boxes: NDArray[np.float32]
    sure: NDArray[np.float32]

    def surer(self, threshold: float) -> Detections:
        """Keep detections of at least this probability."""
        return self._of(self.sure >= threshold)

    def surest_first(self) -> Detections:
        return self._of((-self.sure).argsort(kind="stable"))

    def _of(self, which: NDArray[Any]) -> Detections:
        return Detections(self.classes[which], self.boxes[which], self.sure[which])


class BoxMetric(Metric):
    """map: the mean of the average precision over classes and over IoU 0.5, 0.55 … 0.95; map50: at IoU 0.5 alone.

    Every detection counts once, for its most probable class other than "no object". Detections on an ignored object of
    their class do not count: on a crowd any number of them, matched by the share of the detection that lies in the crowd.
    """

    def __init__(self, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._classes, self._scale = classes, (mean, std)
        self._images: list[dict[str, Any]] = []
        self._truths: list[dict[str, Any]] = []
        self._predicted: list[dict[str, Any]] = []
        self._objects = 0  # not counting ignored ones
        self._kept: list[dict[str, Any]] = []
        self._ranking = Ranking("box_f1")

    def update(self, outputs: Objects, batch: Batch) -> None:
        predictions = detections(outputs)
        truths = corners(batch.targets["boxes"].cpu())
        for row, about in enumerate(batch.texts):
            real = batch.targets["classes"][row].cpu() != IGNORE
            truth = batch.targets["classes"][row].cpu()[real].numpy(), truths[row][real].numpy()
            self._add(about, truth, predictions[row])
            sample = partial(self._sample, batch.inputs["ids"][row], about, truth, predictions[row])
            if len(self._kept) < _KEPT:
                self._kept.append(sample())
            if not about.get("ignored"):  # detections on ignored objects would count as wrong
                self._ranking.add(box_f1(truth, predictions[row].surer(SHOWN)), sample, len(truth[0]))

    def _add(self, about: dict[str, Any], truth: tuple[Any, Any], predicted: Detections) -> None:
        """Add a picture in COCO's format, in pixels of the original picture."""
        height, width = about["size"]
        image, scale = len(self._images) + 1, edges_of(about["size"])
        self._images.append({"id": image, "height": height, "width": width})
        for number, box in zip(*truth, strict=True):
            self._add_truth(_entry(image, number, box * scale))
        for number, box, crowd in about.get("ignored", ()):
            self._add_truth(_entry(image, number, box * scale), ignored=True, crowd=crowd)
        for number, box, score in sorted(zip(*predicted, strict=True), key=lambda one: -one[2])[:_MOST]:
            self._predicted.append({**_entry(image, number, box * scale), "score": float(score)})

    def _add_truth(self, entry: dict[str, Any], ignored: bool = False, crowd: bool = False) -> None:
        self._objects += not ignored
        self._truths.append({**entry, "id": len(self._truths) + 1, "iscrowd": int(crowd), "ignored": int(ignored)})

    def _sample(
        self, pixels: torch.Tensor, about: dict[str, Any], truth: tuple[Any, Any], predicted: Detections
    ) -> dict[str, Any]:
        shown = predicted.surer(SHOWN)
        return {
            "source": about["where"],
            "output": counted(shown.classes, self._classes),
            "target": counted(truth[0], self._classes),
            "picture": {
                "kind": "boxes",
                "image": png(denormalized(pixels.cpu().numpy(), *self._scale)),
                "size": list(pixels.shape[1:]),
                "truth": drawn(self._classes, *truth),
                "made": drawn(self._classes, *shown),
            },
        }

    def compute(self) -> dict[str, MetricValue]:
        if not self._objects:
            return {}
        precision = average_precision(self._images, self._truths, self._predicted, len(self._classes))
        how = f"COCO's average precision, by pycocotools, {self._objects:,} objects"
        ignored = len(self._truths) - self._objects
        how += f" and {ignored:,} ignored" if ignored else ""
        return {"map": MetricValue(precision[0], how), "map50": MetricValue(precision[1], f"{how}, at IoU 0.5")}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self._kept[:count]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()


def box_f1(truth: tuple[NDArray[np.int64], NDArray[np.float32]], predicted: Detections) -> float:
    """F1 of the objects of one picture at IoU 0.5, from true (classes, boxes): the surest detections are matched first, each
    with the true object of its class that it overlaps most. NaN if there are neither objects nor detections."""
    classes, boxes = (torch.from_numpy(part) for part in truth)
    if not len(classes) + len(predicted.classes):
        return math.nan
    free, right = torch.ones(len(classes), dtype=torch.bool), 0
    for number, box, _ in zip(*predicted.surest_first(), strict=True):
        shares = overlap(torch.from_numpy(box), boxes)[0].where(free & (classes == int(number)), torch.tensor(0.0))
        if len(shares) and shares.max() >= _SAME:
            free[shares.argmax()] = False
            right += 1
    return 2 * right / (len(classes) + len(predicted.classes))


def detections(outputs: Objects) -> list[Detections]:
    """Convert a detector's outputs to the detections of each picture: `logits` (B, N, classes + 1), the last class "no
    object", and `boxes` (B, N, 4)."""
    sure, classes = outputs.logits.softmax(-1)[..., :-1].max(-1)
    parts = (part.numpy() for part in (classes, corners(outputs.boxes), sure))
    return [Detections(*row) for row in zip(*parts, strict=True)]


def edges_of(size: tuple[int, int]) -> NDArray[np.int64]:
    """(width, height, width, height), which turns edges as shares of a picture into pixels."""
    height, width = size
    return np.array([width, height, width, height])


def counted(numbers: NDArray[np.int64], names: Sequence[str]) -> str:
    """Count objects by class: "2 circle, 1 square"."""
    counts = Counter(numbers.tolist())
    return ", ".join(f"{counts[k]} {names[k]}" for k in sorted(counts)) or "nothing"


def drawn(
    names: Sequence[str], numbers: NDArray[Any], boxes: NDArray[Any], scores: NDArray[Any] | None = None
) -> list[dict[str, Any]]:
    """Describe objects for `tasks.detection.picture`."""
    return [
        {
            "name": names[number],
            "color": "#{:02x}{:02x}{:02x}".format(*class_color(int(number) + 1)),
            "box": [round(float(share), 4) for share in box],
            **({} if scores is None else {"score": round(float(scores[i]), 3)}),
        }
        for i, (number, box) in enumerate(zip(numbers, boxes, strict=True))
    ]


def _entry(image: int, number: int, box: NDArray[Any]) -> dict[str, Any]:
    left, top, right, bottom = (float(edge) for edge in box)
    size = right - left, bottom - top
    return {"image_id": image, "category_id": int(number) + 1, "bbox": [left, top, *size], "area": size[0] * size[1]}
