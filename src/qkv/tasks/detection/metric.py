"""COCO's average precision of detected objects (Lin et al. 2014)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.batch import IGNORE, Batch
from ...data.media.images import denormalized
from ...data.media.png import class_color, png
from ...layers.boxes import corners
from ...metrics.average_precision import average_precision
from ...metrics.base import Metric, MetricValue

_KEPT = 16  # pictures kept to be shown
SHOWN = 0.5  # how sure a detection is that is shown
_MOST = 100  # detections of a picture, the surest, that COCO counts


class Detections(NamedTuple):
    """What is found in a picture: the likeliest class of each object, its edges (left, top, right, bottom) as shares of the
    picture, and how likely the class is."""

    classes: NDArray[np.int64]
    boxes: NDArray[np.float32]
    sure: NDArray[np.float32]

    def surer(self, threshold: float) -> Detections:
        """Those that are at least so sure."""
        return self._of(self.sure >= threshold)

    def surest_first(self) -> Detections:
        return self._of((-self.sure).argsort(kind="stable"))

    def _of(self, which: NDArray[Any]) -> Detections:
        return Detections(self.classes[which], self.boxes[which], self.sure[which])


class BoxMetric(Metric):
    """map: the mean over classes and over IoU 0.5, 0.55 … 0.95 of the average precision; map50: at IoU 0.5 alone.

    Every detection counts once, for the class that it finds likeliest, "no object" left aside. What lies on an ignored
    object of its class counts not at all: in a crowd any number of detections, by the share of them that is in it.
    """

    def __init__(self, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._classes, self._scale = classes, (mean, std)
        self._images: list[dict[str, Any]] = []
        self._truths: list[dict[str, Any]] = []
        self._made: list[dict[str, Any]] = []
        self._objects = 0  # that are to be found
        self._kept: list[dict[str, Any]] = []

    def update(self, outputs: Any, batch: Batch) -> None:
        said = detections(outputs)
        truths = corners(batch.targets["boxes"].cpu())
        for row, about in enumerate(batch.texts):
            real = batch.targets["classes"][row].cpu() != IGNORE
            named = batch.targets["classes"][row].cpu()[real].numpy(), truths[row][real].numpy()
            self._take(about, named, said[row])
            if len(self._kept) < _KEPT:
                self._keep(batch.inputs["ids"][row], about, named, said[row])

    def _take(self, about: dict[str, Any], truth: tuple[Any, Any], made: Detections) -> None:
        """An image as COCO has it, in pixels of the picture as it was."""
        height, width = about["size"]
        image, scale = len(self._images) + 1, edges_of(about["size"])
        self._images.append({"id": image, "height": height, "width": width})
        for number, box in zip(*truth, strict=True):
            self._true(_entry(image, number, box * scale))
        for number, box, crowd in about.get("ignored", ()):
            self._true(_entry(image, number, box * scale), ignored=True, crowd=crowd)
        for number, box, score in sorted(zip(*made, strict=True), key=lambda one: -one[2])[:_MOST]:
            self._made.append({**_entry(image, number, box * scale), "score": float(score)})

    def _true(self, entry: dict[str, Any], ignored: bool = False, crowd: bool = False) -> None:
        self._objects += not ignored
        self._truths.append({**entry, "id": len(self._truths) + 1, "iscrowd": int(crowd), "ignored": int(ignored)})

    def _keep(self, pixels: torch.Tensor, about: dict[str, Any], truth: tuple[Any, Any], made: Detections) -> None:
        shown = made.surer(SHOWN)
        self._kept.append(
            {
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
        )

    def compute(self) -> dict[str, MetricValue]:
        if not self._objects:
            return {}
        precision = average_precision(self._images, self._truths, self._made, len(self._classes))
        how = f"COCO's average precision, by pycocotools, {self._objects:,} objects"
        ignored = len(self._truths) - self._objects
        how += f" and {ignored:,} ignored" if ignored else ""
        return {"map": MetricValue(precision[0], how), "map50": MetricValue(precision[1], f"{how}, at IoU 0.5")}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self._kept[:count]


def detections(outputs: Any) -> list[Detections]:
    """What a detector says of each picture of a batch: `outputs.logits` (B, N, classes + 1), the last class "no object",
    and `outputs.boxes` (B, N, 4)."""
    sure, classes = outputs.logits.softmax(-1)[..., :-1].max(-1)
    parts = (part.numpy() for part in (classes, corners(outputs.boxes), sure))
    return [Detections(*row) for row in zip(*parts, strict=True)]


def edges_of(size: tuple[int, int]) -> NDArray[np.int64]:
    """What shares are of in a picture of this height and width, so that edges are in pixels."""
    height, width = size
    return np.array([width, height, width, height])


def counted(numbers: NDArray[np.int64], names: Sequence[str]) -> str:
    """2 circle, 1 square"""
    found = Counter(numbers.tolist())
    return ", ".join(f"{found[k]} {names[k]}" for k in sorted(found)) or "nothing"


def drawn(names: Sequence[str], numbers: Any, boxes: Any, scores: Any = None) -> list[dict[str, Any]]:
    """Objects as `tasks.detection.picture` draws them."""
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
