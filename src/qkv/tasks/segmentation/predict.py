"""The class of every pixel of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.batch import IGNORE
from ...data.media.images import Pixels
from ...data.media.png import class_png_bytes, laid_over, png_bytes
from ...data.readers.segmentation_masks import Mask
from ..asking import asked
from ..prediction import Prediction
from .metric import likeliest, seen_in
from .task import Segment

if TYPE_CHECKING:
    from ...inference.run import Run


def segmented(run: Run, task: Segment, paths: Sequence[str]) -> Iterator[Prediction]:
    """Of each picture a mask (H, W) of its size, the number of every pixel's class; `fields` have the share of each class.
    Files: the mask, whose values are these numbers, and the picture under its colors.

    Raises ValueError for a file that holds no picture.
    """
    for path in paths:  # one after the other: the tiles of one may be many
        pixels = task.read(path)
        yield _prediction(task, path, _mask(run, task, path, pixels))


def _mask(run: Run, task: Segment, path: str, pixels: Pixels) -> Mask:
    """Put together from tiles as in evaluation, where a label stands for each pixel that is a tile's own."""
    mask = np.empty(pixels.shape[1:], np.uint8)
    of_one_class = np.full(mask.shape, task.values[0], np.uint8)
    for _, batch in asked(run, task, [{"image": pixels, "mask": of_one_class, "where": path}]):
        assert batch.labels is not None
        labels = batch.labels.cpu()
        made = likeliest(seen_in(task.views, run.model, batch), labels.shape[1:]).numpy()
        for about, found, own in zip(batch.texts, made, (labels != IGNORE).numpy(), strict=True):
            rows, columns = own.nonzero()
            mask[about["place"].top + rows, about["place"].left + columns] = found[own]
    return mask


def _prediction(task: Segment, path: str, mask: Mask) -> Prediction:
    counts = np.bincount(mask.ravel(), minlength=len(task.classes))
    shares = {name: count / mask.size for name, count in zip(task.classes, counts.tolist(), strict=True)}
    height, width = mask.shape
    said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share)
    fields = {"size": [height, width], "shares": shares}
    return Prediction(path, mask, f"{path}: {said}", fields, Path(path).stem, partial(_drawn, task, path, mask))


def _drawn(task: Segment, path: str, mask: Mask) -> Mapping[str, bytes]:
    return {".mask.png": class_png_bytes(mask), ".classes.png": png_bytes(laid_over(task.read(path), mask))}
