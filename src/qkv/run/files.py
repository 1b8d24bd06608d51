"""What class the picture, or the sound, in a file is of, by a trained run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data import audio
from ..data.task import Chance
from ..data.tasks.image_classify import ImageClassify
from ..data.tasks.sound import Sound
from ..data.tasks.video_classify import VideoClassify
from .classify import Classified

if TYPE_CHECKING:
    from .load import Run

Paths = Sequence[str | Path]
_AT_ONCE = 64  # files in a batch


def classify_files(run: Run, paths: Paths) -> list[Classified]:
    """The class of each file's picture or sound, brought to the model's size and normalized as in training.

    Raises ValueError where the run was not trained to tell classes of these, and where a file holds none.
    """
    task = None if run.recipe is None else run.recipe.task
    made: Callable[[Paths], Tensor]
    if isinstance(task, Sound):
        classes, made = task.classes, lambda part: _spectrograms(task, part)
    elif isinstance(task, ImageClassify) and not isinstance(task, VideoClassify):
        classes, made = task.classes, lambda part: _pictures(task, part)
    else:
        name = run.path or "this run"
        raise ValueError(
            f"{name} does not tell classes of pictures or of sounds; train one that does by `qkv train vit` or "
            "`qkv train speech`"
        )
    parts = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    return [found for part in parts for found in _classified(run, classes, made(part))]


@torch.inference_mode()
def _classified(run: Run, classes: Sequence[str], inputs: Tensor) -> list[Classified]:
    shares = run.model(inputs.to(run.model.device)).float().softmax(-1)
    ranked = (sorted(zip(classes, row, strict=True), key=lambda one: -one[1]) for row in shares.tolist())
    return [Classified(row[0][0], dict(row)) for row in ranked]


def _pictures(task: ImageClassify, paths: Paths) -> Tensor:
    examples = [{"image": task.read(path), "where": str(path)} for path in paths]
    return torch.from_numpy(task.stacked(examples, Chance(np.random.default_rng(0), training=False)).pictures)


def _spectrograms(task: Sound, paths: Paths) -> Tensor:
    heard = (audio.read(path) for path in paths)
    return torch.from_numpy(np.stack([task.picture(samples, rate) for samples, rate in heard])[:, None])
