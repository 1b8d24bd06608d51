"""Prediction of the objects in a picture, each with its class and its box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...data.media.images import Pixels, Size
from ...data.media.png import png
from ...data.source import Example
from ...look.pictures import draw
from ...metrics.base import model_outputs
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts, prediction_batches
from .metric import SHOWN, Detections, counted, detections, drawn, edges_of
from .task import Detect

Reader = Callable[[str], Pixels]


class Object(NamedTuple):
    """The class of an object, how likely that is, and its left, top, right and bottom edge in the file's pixels."""

    name: str
    score: float
    box: tuple[float, float, float, float]


@Detect.predicts
def predict(
    task: Detect, trained: TrainedModel, paths: Sequence[str], *, threshold: float = SHOWN, **_: Any
) -> Iterator[Prediction]:
    """Of each picture its `Object`s of which the model is at least so sure, the surest first. Files: the picture with them.

    Raises ValueError for a threshold that is no probability, and a file that holds no picture.
    """
    check_threshold(threshold)
    for part in in_parts(paths):
        yield from _of_pictures(task, trained, part, threshold)


def check_threshold(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ValueError(f"the threshold is a probability, from 0 to 1, not {threshold:g}")


def _of_pictures(task: Detect, trained: TrainedModel, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    examples: list[Example] = [{"image": task.read(path), "where": path} for path in paths]
    found: dict[int, Detections] = {}
    for numbers, batch in prediction_batches(trained, task, examples):
        found |= zip(numbers, detections(model_outputs(trained.model, batch)), strict=True)
    for number, example in enumerate(examples):
        size = example["image"].shape[1:]
        made = found[number].surer(threshold).surest_first()
        yield detection_prediction(task.classes, task.read, example["where"], size, made)


def detection_prediction(classes: Sequence[str], read: Reader, path: str, size: Size, found: Detections) -> Prediction:
    """Detections in a file's picture of this height and width."""
    height, width = size
    edges = (found.boxes * edges_of((height, width))).tolist()
    objects = [
        Object(classes[number], score, tuple(box))
        for number, score, box in zip(found.classes.tolist(), found.sure.tolist(), edges, strict=True)
    ]
    lines = [f"{path}: {counted(found.classes, classes)}"]
    lines += [f"  {one.name} {one.score:.2f} at {' '.join(f'{edge:.0f}' for edge in one.box)}" for one in objects]
    told = [{"class": one.name, "score": one.score, "box": list(one.box)} for one in objects]
    fields = {"size": [height, width], "objects": told}
    picture = partial(_drawn, classes, read, path, found)
    return Prediction(path, objects, "\n".join(lines), fields, Path(path).stem, picture)


def _drawn(classes: Sequence[str], read: Reader, path: str, found: Detections) -> Mapping[str, bytes]:
    pixels, made = read(path), drawn(classes, *found)
    shown = {"kind": "boxes", "image": png(pixels), "size": pixels.shape[1:], "truth": [], "made": made}
    return {".boxes.svg": str(draw(shown)).encode()}
