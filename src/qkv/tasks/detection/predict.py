"""The objects in a picture, each with its class and its box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from ...core.batch import Batch
from ...data.media.images import Pixels, Size
from ...data.media.png import png
from ...data.source import Example
from ...directories.preprocessor import Preprocessor
from ...inference.classify import labels_of
from ...look.pictures import draw
from ...metrics.base import model_outputs
from ...models.heads.vision import Detector
from ...models.transformer import Transformer
from ..asking import asked, parts_of
from ..prediction import Prediction
from .metric import Detections, counted, detections, drawn, edges_of
from .task import Detect

if TYPE_CHECKING:
    from ...inference.run import Run


Reader = Callable[[str], Pixels]


class Object(NamedTuple):
    """The class of an object, how likely that is, and its left, top, right and bottom edge in the file's pixels."""

    name: str
    score: float
    box: tuple[float, float, float, float]


def detected(run: Run, task: Detect, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    """Of each picture its `Object`s of which the model is at least so sure, the surest first. Files: the picture with them.

    Raises ValueError for a threshold that is no probability, and a file that holds no picture.
    """
    _check(threshold)
    for part in parts_of(paths):
        yield from _of_pictures(run, task, part, threshold)


def detected_by_head(run: Run, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    """As `detected`, of a model of the Hub: its classes are those of its `id2label`, pictures are brought to its size as its
    `preprocessor_config.json` says, each by itself."""
    _check(threshold)
    spec = run.model.spec
    assert isinstance(spec, Transformer) and isinstance(spec.head, Detector) and run.path is not None
    way, classes = Preprocessor.of(run.path, spec), labels_of(run, spec.head.labels)
    for path in paths:
        pixels = way.read(path)
        seen = torch.from_numpy(way.numbers(pixels))[None]
        (found,) = detections(model_outputs(run.model, Batch({"ids": seen}).to(run.model.device)))
        yield _prediction(classes, way.read, path, pixels.shape[1:], found.surer(threshold).surest_first())


def _check(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ValueError(f"the threshold is a probability, from 0 to 1, not {threshold:g}")


def _of_pictures(run: Run, task: Detect, paths: Sequence[str], threshold: float) -> Iterator[Prediction]:
    examples: list[Example] = [{"image": task.read(path), "where": path} for path in paths]
    found: dict[int, Detections] = {}
    for of, batch in asked(run, task, examples):
        found |= zip(of, detections(model_outputs(run.model, batch)), strict=True)
    for number, example in enumerate(examples):
        size = example["image"].shape[1:]
        made = found[number].surer(threshold).surest_first()
        yield _prediction(task.classes, task.read, example["where"], size, made)


def _prediction(classes: Sequence[str], read: Reader, path: str, size: Size, found: Detections) -> Prediction:
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
