"""Prediction of semantic segmentation: the class of every pixel of new pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....data.media.images import Pixels
from ....data.media.png import class_png_bytes, laid_over, png_bytes
from ....data.readers.segmentation_masks import Mask
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches
from .metric import likeliest, seen_in
from .task import Place, Segment


@Segment.predicts
def predict(task: Segment, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Predict a mask (H, W) for each picture: the class index of every pixel; `fields` have the share of each class. Output
    files: the mask with these indices, and the picture overlaid with colors.

    Raises ValueError if a file holds no picture.
    """
    for path in paths:  # one at a time, as a picture may have many tiles
        pixels = task.read(path)
        yield _prediction(task, path, _mask(task, trained, path, pixels))


def _mask(task: Segment, trained: TrainedModel, path: str, pixels: Pixels) -> Mask:
    """Assemble the mask from the pixels that each tile owns, as in evaluation."""
    high, wide = (max(n, side) for n, side in zip(pixels.shape[1:], task.size, strict=True))
    mask = np.empty((high, wide), np.uint8)
    for _, batch in prediction_batches(trained, task, [{"image": pixels, "where": path}]):
        classes = likeliest(seen_in(task.views, trained.model, batch), task.size).numpy().astype(np.uint8)
        for about, indices in zip(batch.texts, classes, strict=True):
            place: Place = about["place"]
            tile = mask[place.top : place.top + task.size[0], place.left : place.left + task.size[1]]
            tile[about["own"]] = indices[about["own"]]
    return np.ascontiguousarray(mask[: pixels.shape[1], : pixels.shape[2]])


def _prediction(task: Segment, path: str, mask: Mask) -> Prediction:
    counts = np.bincount(mask.ravel(), minlength=len(task.classes))
    shares = {name: count / mask.size for name, count in zip(task.classes, counts.tolist(), strict=True)}
    height, width = mask.shape
    summary = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share)
    fields = {"size": [height, width], "shares": shares}
    return Prediction(path, mask, f"{path}: {summary}", fields, Path(path).stem, partial(_files, task, path, mask))


def _files(task: Segment, path: str, mask: Mask) -> Mapping[str, bytes]:
    return {".mask.png": class_png_bytes(mask), ".classes.png": png_bytes(laid_over(task.read(path), mask))}
