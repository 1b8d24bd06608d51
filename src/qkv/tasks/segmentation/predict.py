"""Prediction of the class of every pixel of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...data.media.images import Pixels
from ...data.media.png import class_png_bytes, laid_over, png_bytes
from ...data.readers.segmentation_masks import Mask
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches
from .metric import likeliest, seen_in
from .task import Place, Segment


@Segment.predicts
def predict(task: Segment, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Of each picture a mask (H, W) of its size, the number of every pixel's class; `fields` have the share of each class.
    Files: the mask, whose values are these numbers, and the picture under its colors.

    Raises ValueError for a file that holds no picture.
    """
    for path in paths:  # one after the other: the tiles of one may be many
        pixels = task.read(path)
        yield _prediction(task, path, _mask(task, trained, path, pixels))


def _mask(task: Segment, trained: TrainedModel, path: str, pixels: Pixels) -> Mask:
    """Put together from the pixels that are each tile's own, as in evaluation."""
    high, wide = (max(n, side) for n, side in zip(pixels.shape[1:], task.size, strict=True))
    mask = np.empty((high, wide), np.uint8)
    for _, batch in prediction_batches(trained, task, [{"image": pixels, "where": path}]):
        classes = likeliest(seen_in(task.views, trained.model, batch), task.size).numpy().astype(np.uint8)
        for about, found in zip(batch.texts, classes, strict=True):
            place: Place = about["place"]
            tile = mask[place.top : place.top + task.size[0], place.left : place.left + task.size[1]]
            tile[about["own"]] = found[about["own"]]
    return np.ascontiguousarray(mask[: pixels.shape[1], : pixels.shape[2]])


def _prediction(task: Segment, path: str, mask: Mask) -> Prediction:
    counts = np.bincount(mask.ravel(), minlength=len(task.classes))
    shares = {name: count / mask.size for name, count in zip(task.classes, counts.tolist(), strict=True)}
    height, width = mask.shape
    said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share)
    fields = {"size": [height, width], "shares": shares}
    return Prediction(path, mask, f"{path}: {said}", fields, Path(path).stem, partial(_drawn, task, path, mask))


def _drawn(task: Segment, path: str, mask: Mask) -> Mapping[str, bytes]:
    return {".mask.png": class_png_bytes(mask), ".classes.png": png_bytes(laid_over(task.read(path), mask))}
