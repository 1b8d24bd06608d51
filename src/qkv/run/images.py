"""What a trained run sees in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ..data.images import Color, read
from ..data.task import Chance
from ..data.tasks.image_classify import ImageClassify
from ..data.tasks.video_classify import VideoClassify

if TYPE_CHECKING:
    from .load import Run

_AT_ONCE = 64  # pictures in a batch


class Guess(NamedTuple):
    """A class, and how probable the model finds it."""

    name: str
    probability: float


def classify_images(run: Run, paths: Sequence[str | Path], top: int = 5) -> list[list[Guess]]:
    """The `top` likeliest classes of the pictures in some files, the likeliest first.

    Raises ValueError where the run was not trained to tell classes of pictures, and where a file holds none.
    """
    task = None if run.recipe is None else run.recipe.task
    if not isinstance(task, ImageClassify) or isinstance(task, VideoClassify):
        raise ValueError(
            f"{run.path or 'this run'} does not tell classes of pictures; train one that does by `qkv train vit`"
        )
    if top < 1:
        raise ValueError(f"top is how many classes are given for a picture, at least 1, not {top}")
    found: list[list[Guess]] = []
    for start in range(0, len(paths), _AT_ONCE):
        found += _guesses(run, task, paths[start : start + _AT_ONCE], min(top, len(task.classes)))
    return found


@torch.inference_mode()
def _guesses(run: Run, task: ImageClassify, paths: Sequence[str | Path], top: int) -> list[list[Guess]]:
    color: Color = "gray" if task.channels == 1 else "rgb"
    examples = [{"image": read(path, color), "where": str(path)} for path in paths]
    stack = task.stacked(examples, Chance(np.random.default_rng(0), training=False))
    scores = run.model(torch.from_numpy(stack.pictures).to(run.model.device)).float().softmax(-1)
    best = scores.topk(top, -1)
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[Guess(task.classes[i], p) for i, p in zip(*row, strict=True)] for row in rows]
