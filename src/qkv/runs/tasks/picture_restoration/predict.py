"""Prediction of clean and of upscaled pictures, of any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....core.batch import Batch
from ....data.media.images import Pixels, denormalized
from ....data.media.png import png_bytes
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import predict_examples
from .metric import check_head, restored, tile_starts
from .task import RestorationTask, Restore, Upscale


@Restore.predicts
@Upscale.predicts
def predict(task: RestorationTask, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Predict a picture for each picture file: an array (H, W) for models of gray pictures, else (H, W, 3), of 0 … 255.
    `fields` have its size, and by how much it differs from the input. The output file is the picture as PNG.

    The picture keeps its size, or is `factor` times as large (`upscale`). Larger pictures than the model's are predicted in
    overlapping tiles, whose mean is taken; smaller ones are extended by reflection. Raises ValueError if a file holds no
    picture.
    """
    check_head(trained.model)
    for path in paths:  # one at a time, as a picture may have many tiles
        before = task.enlarged(task.read(path))
        after = _restored(task, trained, path, before)
        yield _prediction(task, path, before, after)


def _restored(task: RestorationTask, trained: TrainedModel, path: str, pixels: Pixels) -> Pixels:
    high, wide = task.size
    height, width = pixels.shape[1:]
    whole = np.pad(pixels, ((0, 0), (0, max(0, high - height)), (0, max(0, wide - width))), "symmetric")
    total = np.zeros(whole.shape, np.float32)
    count = np.zeros(whole.shape[1:], np.float32)
    columns = tile_starts(whole.shape[2], wide)
    for top in tile_starts(whole.shape[1], high):
        tiles = [{"image": whole[:, top : top + high, left : left + wide], "where": path} for left in columns]
        for left, numbers in zip(columns, predict_examples(trained, task, tiles, partial(_decoded, task)), strict=True):
            total[:, top : top + high, left : left + wide] += numbers
            count[top : top + high, left : left + wide] += 1
    return np.ascontiguousarray(denormalized(total / count, task.mean, task.std)[:, :height, :width])


def _decoded(task: RestorationTask, outputs: Tensor, batch: Batch) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = restored(batch.inputs["ids"].float().cpu(), outputs, task.patch).numpy()
    return numbers


def _prediction(task: RestorationTask, path: str, before: Pixels, after: Pixels) -> Prediction:
    height, width = after.shape[1:]
    change = float(np.abs(after.astype(np.float32) - before).mean())
    base = "bicubic interpolation" if isinstance(task, Upscale) else "the input"
    text = f"{path}: {height} × {width} pixels, which differ from {base} by {change:.1f} of 255 levels on average"
    fields = {"size": [height, width], "change": change}
    value = after[0] if len(after) == 1 else after.transpose(1, 2, 0)
    return Prediction(path, value, text, fields, Path(path).stem, partial(_files, task, after))


def _files(task: RestorationTask, pixels: Pixels) -> Mapping[str, bytes]:
    return {f".{task.made}.png": png_bytes(pixels)}
