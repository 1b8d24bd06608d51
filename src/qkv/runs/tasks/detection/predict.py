"""Prediction of object detection: the class and the bounding box of each object in new pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....data.media.images import Pixels, Size
from ....data.media.png import png
from ....data.source import Example
from ....look.pictures import draw
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts, predict_examples
from .metric import SHOWN, Detections, counted, detections, drawn, edges_of
from .task import Detect

Reader = Callable[[str], Pixels]


class DetectedObject(NamedTuple):
    """The class of an object, its probability, and the left, top, right and bottom edges in pixels of the picture as it is
    shown: turned by its EXIF data, if it has any."""

    name: str
    score: float
    box: tuple[float, float, float, float]


@Detect.predicts
def predict(
    task: Detect, trained: TrainedModel, paths: Sequence[str], *, threshold: float = SHOWN, **_: Any
) -> Iterator[Prediction]:
    """Predict the `DetectedObject`s of each picture with at least the probability `threshold`, the most probable first.
    Output files: the picture with its boxes.

    Raises ValueError if the threshold is not a probability, or a file holds no picture.
    """
    check_threshold(threshold)
    for part in in_parts(paths):
        examples: list[Example] = [{"image": task.read(path), "where": path} for path in part]
        results = predict_examples(trained, task, examples, lambda outputs, _: detections(outputs))
        for path, example, result in zip(part, examples, results, strict=True):
            objects = result.surer(threshold).surest_first()
            yield detection_prediction(task.classes, task.read, path, example["image"].shape[1:], objects)


def check_threshold(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ValueError(f"the threshold is a probability, from 0 to 1, not {threshold:g}")


def detection_prediction(
    classes: Sequence[str], read: Reader, path: str, size: Size, detected: Detections
) -> Prediction:
    """Make a `Prediction` of the detections in a picture file of this height and width."""
    height, width = size
    edges = (detected.boxes * edges_of((height, width))).tolist()
    objects = [
        DetectedObject(classes[number], score, tuple(box))
        for number, score, box in zip(detected.classes.tolist(), detected.sure.tolist(), edges, strict=True)
    ]
    lines = [f"{path}: {counted(detected.classes, classes)}"]
    lines += [f"  {one.name} {one.score:.2f} at {' '.join(f'{edge:.0f}' for edge in one.box)}" for one in objects]
    described = [{"class": one.name, "score": one.score, "box": list(one.box)} for one in objects]
    fields = {"size": [height, width], "objects": described}
    picture = partial(_picture, classes, read, path, detected)
    return Prediction(path, objects, "\n".join(lines), fields, Path(path).stem, picture)


def _picture(classes: Sequence[str], read: Reader, path: str, detected: Detections) -> Mapping[str, bytes]:
    pixels, boxes = read(path), drawn(classes, *detected)
    shown = {"kind": "boxes", "image": png(pixels), "size": pixels.shape[1:], "truth": [], "made": boxes}
    return {".boxes.svg": str(draw(shown)).encode()}
