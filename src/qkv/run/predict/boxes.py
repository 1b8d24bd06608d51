"""The objects in a picture, each with its class and its box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...data.images import Size
from ...data.judge import said_of
from ...data.judges.located import Detections, counted, detections, drawn, edges_of
from ...data.png import png
from ...data.sources import Example
from ...data.tasks.detect import Detect
from ...look.pictures import draw
from .asking import asked, parts_of
from .prediction import Prediction

if TYPE_CHECKING:
    from ..load import Run


class Object(NamedTuple):
    """The class of an object, how likely that is, and its left, top, right and bottom edge in the file's pixels."""

    name: str
    score: float
    box: tuple[float, float, float, float]


def detected(run: Run, task: Detect, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    """Of each picture its `Object`s of which the model is at least so sure, the surest first. Files: the picture with them.

    Raises ValueError for a threshold that is no probability, and a file that holds no picture.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"the threshold is a probability, from 0 to 1, not {threshold:g}")
    for part in parts_of(paths):
        yield from _of_pictures(run, task, part, threshold)


def _of_pictures(run: Run, task: Detect, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    examples: list[Example] = [{"image": task.read(path), "where": path} for path in paths]
    found: dict[int, Detections] = {}
    for of, batch in asked(run, task, examples):
        found |= zip(of, detections(said_of(run.model, batch)), strict=True)
    for number, example in enumerate(examples):
        size = example["image"].shape[1:]
        yield _prediction(task, example["where"], size, found[number].surer(threshold).surest_first())


def _prediction(task: Detect, path: str, size: Size, found: Detections) -> Prediction:
    height, width = size
    edges = (found.boxes * edges_of((height, width))).tolist()
    objects = [
        Object(task.classes[number], score, tuple(box))
        for number, score, box in zip(found.classes.tolist(), found.sure.tolist(), edges, strict=True)
    ]
    lines = [f"{path}: {counted(found.classes, task.classes)}"]
    lines += [f"  {one.name} {one.score:.2f} at {' '.join(f'{edge:.0f}' for edge in one.box)}" for one in objects]
    told = [{"class": one.name, "score": one.score, "box": list(one.box)} for one in objects]
    fields = {"size": [height, width], "objects": told}
    picture = partial(_drawn, task, path, found)
    return Prediction(path, objects, "\n".join(lines), fields, Path(path).stem, picture)


def _drawn(task: Detect, path: str, found: Detections) -> Mapping[str, bytes]:
    pixels, made = task.read(path), drawn(task.classes, *found)
    shown = {"kind": "boxes", "image": png(pixels), "size": pixels.shape[1:], "truth": [], "made": made}
    return {".boxes.svg": str(draw(shown)).encode()}
