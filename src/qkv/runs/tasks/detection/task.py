"""The task `detect`: object detection, the class and the bounding box of each object in a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import Metric
from ....core.spec import nearest
from ....data.batching.numpy_batch import Array, NumpyBatch
from ....data.classes import Others
from ....data.media.exif import UPRIGHT, turned_boxes
from ....data.media.images import Pixels
from ....data.source import SPLITS, Example, OnError, Skipped, Source
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ..pictures import SceneTask
from .metric import BoxMetric

Boxes = NDArray[np.float32]  # (n, 4): left, top, right and bottom edge, in pixels
_EDGE = 1.0  # pixels by which a box may exceed its picture, as some annotation tools write; it is cut there


class Detect(SceneTask, kind="detect"):
    """Pictures with "boxes" (n, 4), the left, top, right and bottom edges of objects in pixels, and their "names".

    "ignored" objects (a list of {"name", "box", "crowd"}) are no targets, and count neither as found nor as missed.

    classes: the names of the classes; by default as in the training data.
    on_error: for an object outside its picture, without area, or of an unknown class: "raise" an error, or "skip" and count
             it.
    vertical_flip: turn training pictures upside down at random.
    crop:    the least share of a training picture's sides that a random crop keeps; 1 does not crop.
    visible: the least share of an object that a crop must show to keep the object.

    Pictures are stretched to the model's size, whatever their shape. Boxes of the stored pixels of a picture that its EXIF
    data turn are turned with it; "annotated", the height and width that the annotations state, tells which boxes these are.
    """

    outputs: ClassVar[str] = "classes"

    classes: tuple[str, ...] = ()
    on_error: OnError = "raise"
    vertical_flip: bool = False
    crop: float = Field(default=1.0, gt=0, le=1)
    visible: float = Field(default=0.4, gt=0, le=1)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("scipy", "pycocotools")

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        if task.classes:
            return task
        names = {name for example in source.examples("train", shuffle=False) for name in example.get("names", ())}
        if not names:
            raise ValueError("no training picture has an object, with its name and its box")
        return task.replace({"classes": tuple(sorted(names))})

    @property
    def n_labels(self) -> int:
        return len(self.classes)

    def check_labels(self, source: Source) -> list[str]:
        for split in SPLITS[1:] if self.on_error == "raise" else ():
            unknown, known = Others(), frozenset(self.classes)
            for example in source.examples(split, shuffle=False):
                for name in example.get("names", ()):
                    if name not in known:
                        unknown.add(name, example)
            if unknown.counts:
                raise ValueError(
                    f"the {split} split has objects of classes that the training data lack: {unknown.listed('object')}; "
                    "give training pictures of them, or skip such objects with task.on_error=skip"
                )
        return []

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        """Return the picture alone, for prediction."""
        pixels = self.pixels(example)
        if isinstance(pixels, Skipped):
            return pixels
        about = {"where": example.get("where", ""), "size": pixels.shape[1:]}
        return Item({"ids": self.normalize(self.resize(pixels))}, tokens=self.tokens, example=about)

    def labelled(self, example: Example, pixels: Pixels, randomness: RandomContext) -> Iterator[Item | Skipped]:
        try:
            turn = self.turn_of(example, pixels, example.get("annotated"))
        except ValueError as error:
            if self.on_error == "raise":
                raise ValueError(f"{error}, or skip such pictures with task.on_error=skip") from None
            yield Skipped("annotated in another size", str(example.get("where", "")))
            return
        example = _turned(example, turn, pixels)
        boxes, classes, reasons = self._objects(example, pixels)
        for _ in range(self.crops if randomness.training else 1):
            yield self._labelled_item(pixels, boxes, classes, example, randomness)
        yield from reasons

    def _labelled_item(
        self, pixels: Pixels, boxes: Boxes, classes: NDArray[np.int64], example: Example, randomness: RandomContext
    ) -> Item:
        about = {"where": example.get("where", ""), "size": pixels.shape[1:]}
        if randomness.training:
            pixels, boxes, kept = self._augmented(pixels, boxes, randomness.generator)
            classes = classes[kept]
        else:
            about["ignored"] = self._ignored(example, pixels)
        numbers = self.normalize(self.resize(pixels))
        if randomness.training:
            numbers = self.relit(numbers, randomness.generator)
        targets = {"boxes": centered(boxes / sides(*pixels.shape[1:])), "classes": classes}
        return Item({"ids": numbers}, targets=targets, tokens=self.tokens, example=about)

    def _ignored(self, example: Example, pixels: Pixels) -> list[tuple[int, NDArray[Any], bool]]:
        """The class, the edges as shares of the picture, and whether it is a crowd, of each ignored object."""
        bounds = sides(*pixels.shape[1:])
        return [
            (self.classes.index(one["name"]), np.asarray(one["box"], np.float32).clip(0, bounds) / bounds, one["crowd"])
            for one in example.get("ignored", ())
            if one["name"] in self.classes
        ]

    def _objects(self, example: Example, pixels: Pixels) -> tuple[Boxes, NDArray[np.int64], list[Skipped]]:
        """The edges and classes of a picture's objects, cut at its border, and the reasons why others are skipped."""
        height, width = pixels.shape[1:]
        all_boxes = np.asarray(example.get("boxes", ()), np.float32).reshape(-1, 4)
        boxes, classes, reasons = [], [], []
        for number, (box, name) in enumerate(zip(all_boxes, example.get("names", ()), strict=True), 1):
            reason = self._fault(box, name, width, height)
            if reason is None:
                boxes.append(box.clip(0, sides(height, width)))
                classes.append(self.classes.index(name))
            elif self.on_error == "skip":
                reasons.append(Skipped(f"objects {reason}"))
            else:
                hint = f"; {nearest(name, self.classes)}" if name not in self.classes else ""
                raise ValueError(
                    f"{example.get('where', 'an example')}: object {number} ({name}, {box.tolist()} in {width} × {height} "
                    f"pixels) is {reason}{hint}; correct it, or skip such objects with task.on_error=skip"
                )
        return np.array(boxes, np.float32).reshape(-1, 4), np.array(classes, np.int64), reasons

    def _fault(self, box: NDArray[Any], name: str, width: int, height: int) -> str | None:
        """Why an object can't be used; None if it can."""
        left, top, right, bottom = box.tolist()
        if name not in self.classes:
            return "of unknown class"
        if not (right > left and bottom > top):  # nor NaN
            return "of no area"
        inside = left >= -_EDGE and top >= -_EDGE and right <= width + _EDGE and bottom <= height + _EDGE
        return None if inside else "outside the picture"

    def _augmented(self, pixels: Pixels, boxes: Boxes, random: np.random.Generator) -> tuple[Pixels, Boxes, Array]:
        """Crop and flip a picture with its boxes at random; also return a mask of the objects that are kept."""
        kept = np.ones(len(boxes), bool)
        if self.crop < 1:
            pixels, boxes, kept = self._cropped(pixels, boxes, random)
        for axis, enabled in ((2, self.flip), (1, self.vertical_flip)):
            if enabled and random.random() < 0.5:
                pixels, boxes = np.flip(pixels, axis), flipped(boxes, pixels.shape[axis], across=axis == 2)
        return np.ascontiguousarray(pixels), boxes, kept

    def _cropped(self, pixels: Pixels, boxes: Boxes, random: np.random.Generator) -> tuple[Pixels, Boxes, Array]:
        size = pixels.shape[1:]
        high, wide = (max(1, round(side * random.uniform(self.crop, 1))) for side in size)
        top, left = (int(random.integers(side - part + 1)) for side, part in zip(size, (high, wide), strict=True))
        moved = (boxes - sides(top, left)).clip(0, sides(high, wide))
        kept = area(moved) >= self.visible * area(boxes)
        return pixels[:, top : top + high, left : left + wide], moved[kept], kept

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """Pad the objects of each picture on the right, with the class −100."""
        if "classes" not in items[0].targets:
            return super().collate(items, pad)
        most = max(len(item.targets["classes"]) for item in items)
        padded = []
        for item in items:
            classes, boxes = np.full(most, IGNORE), np.zeros((most, 4), np.float32)
            boxes[..., 2:] = 1  # of some size, so nothing is divided by zero
            n = len(item.targets["classes"])
            classes[:n], boxes[:n] = item.targets["classes"], item.targets["boxes"]
            padded.append(replace(item, targets={"classes": classes, "boxes": boxes}))
        return super().collate(padded, pad)

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        if "classes" not in targets:
            return {}
        objects = int((targets["classes"] != IGNORE).sum())
        return {"class": len(targets["classes"]), "box": objects, "giou": objects}

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return BoxMetric(self.classes, self.mean, self.std)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        lines = [line for line in super().preview(batch, row, tokenizer) if line[0] not in ("classes", "boxes")]
        for number, box in zip(batch.targets["classes"][row], batch.targets["boxes"][row], strict=True):
            if number != IGNORE:
                place = " ".join(f"{share:.3f}" for share in box.tolist())
                lines.append(("object", f"{self.classes[int(number)]} at {place} (center, width and height)"))
        return lines


def _turned(example: Example, orientation: int, pixels: Pixels) -> Example:
    """An example whose boxes are on the picture as its EXIF data turn it."""
    if orientation == UPRIGHT:
        return example

    def turned(boxes: Any) -> list[list[float]]:
        return turned_boxes(boxes, orientation, (pixels.shape[1], pixels.shape[2])).tolist()

    ignored = [{**one, "box": turned(one["box"])[0]} for one in example.get("ignored", ())]
    return {**example, "boxes": turned(example.get("boxes", ())), "ignored": ignored}


def sides(height: int, width: int) -> Boxes:
    """(width, height, width, height) of a picture, which bounds the edges of its boxes."""
    return np.array([width, height, width, height], np.float32)


def centered(boxes: Boxes) -> Boxes:
    """Convert the edges of boxes to (center x, center y, width, height)."""
    first, last = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([(first + last) / 2, last - first], 1)


def flipped(boxes: Boxes, side: int, across: bool) -> Boxes:
    """Mirror boxes, left to right (`across`) or upside down."""
    a, b = (0, 2) if across else (1, 3)
    mirrored = boxes.copy()
    mirrored[:, a], mirrored[:, b] = side - boxes[:, b], side - boxes[:, a]
    return mirrored


def area(boxes: Boxes) -> NDArray[np.float32]:
    areas: NDArray[np.float32] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
