"""What class a picture is of, by a trained run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..data.images import Color, read
from ..data.task import Chance
from ..data.tasks.image_classify import ImageClassify
from ..data.tasks.video_classify import VideoClassify
from .classify import Classified

if TYPE_CHECKING:
    from .load import Run

_AT_ONCE = 64  # pictures in a batch


def classify_images(run: Run, paths: Sequence[str | Path]) -> list[Classified]:
    """The class of the picture in each file, brought to the model's size and normalized as in training.

    Raises ValueError where the run was not trained to tell classes of pictures, and where a file holds none.
    """
    task = None if run.recipe is None else run.recipe.task
    if not isinstance(task, ImageClassify) or isinstance(task, VideoClassify):
        name = run.path or "this run"
        raise ValueError(f"{name} does not tell classes of pictures; train one that does by `qkv train vit`")
    parts = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    return [found for part in parts for found in _classified(run, task, part)]


@torch.inference_mode()
def _classified(run: Run, task: ImageClassify, paths: Sequence[str | Path]) -> list[Classified]:
    color: Color = "gray" if task.channels == 1 else "rgb"
    examples = [{"image": read(path, color), "where": str(path)} for path in paths]
    stack = task.stacked(examples, Chance(np.random.default_rng(0), training=False))
    shares = run.model(torch.from_numpy(stack.pictures).to(run.model.device)).float().softmax(-1)
    ranked = (sorted(zip(task.classes, row, strict=True), key=lambda one: -one[1]) for row in shares.tolist())
    return [Classified(row[0][0], dict(row)) for row in ranked]
