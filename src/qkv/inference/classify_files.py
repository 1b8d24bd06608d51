"""What class the picture, the sound, or the video in a file is of, by a trained run or a model of the Hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data.media import audio
from ..data.task import RandomContext
from ..directories.preprocessor import Preprocessor
from ..models.heads.vision import ImageClassifier
from ..models.transformer import Transformer
from ..tasks.image_classification.task import ImageClassify
from ..tasks.sound_classification.task import Sound
from ..tasks.video_classification.task import VideoClassify
from .classify import Classified, labels_of, ranked

if TYPE_CHECKING:
    from .loaded import LoadedModel

Paths = Sequence[str | Path]
Made = Callable[[Paths], Tensor]
_AT_ONCE = 64  # files in a batch


def classify_files(run: LoadedModel, paths: Paths) -> list[Classified]:
    """The class of each file's picture, sound or video, brought to the model's size and normalized as in training; for a
    model of the Hub as its `preprocessor_config.json` says.

    Raises ValueError where the run was not trained to tell classes of these, and where a file holds none.
    """
    classes, made = _reader(run)
    parts = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    return [found for part in parts for found in ranked(run, classes, _scores(run, made(part)))]


def _reader(run: LoadedModel) -> tuple[Sequence[str], Made]:
    """The classes that a run tells apart, and what makes its inputs of files."""
    head = run.model.spec.head
    match None if run.recipe is None else run.recipe.task:
        case Sound() as task:
            return task.classes, lambda paths: _spectrograms(task, paths)
        case ImageClassify() as task:
            return task.classes, lambda paths: _pictures(task, paths)
        case None if run.path is not None and isinstance(head, ImageClassifier):
            assert isinstance(run.model.spec, Transformer)  # heads of images are on no other
            one = Preprocessor.of(run.path, run.model.spec)
            return labels_of(run, head.labels), lambda paths: _preprocessed(one, paths)
    raise ValueError(
        f"{run.path or 'this run'} does not tell classes of pictures, sounds or videos; train one that does by "
        "`qkv train vit`, `qkv train speech` or `qkv train video`"
    )


@torch.inference_mode()
def _scores(run: LoadedModel, inputs: Tensor) -> Tensor:
    scores: Tensor = run.model(inputs.to(run.model.device)).float().cpu()
    return scores


def _pictures(task: ImageClassify, paths: Paths) -> Tensor:
    """Of pictures, or of videos, which the model reads as such."""
    what = "video" if isinstance(task, VideoClassify) else "image"
    examples = [{what: task.read(path), "where": str(path)} for path in paths]
    return torch.from_numpy(task.stacked(examples, RandomContext(np.random.default_rng(0), training=False)).pictures)


def _preprocessed(one: Preprocessor, paths: Paths) -> Tensor:
    return torch.from_numpy(np.stack([one.numbers(one.read(path)) for path in paths]))


def _spectrograms(task: Sound, paths: Paths) -> Tensor:
    heard = (audio.read(path) for path in paths)
    return torch.from_numpy(np.stack([task.picture(samples, rate) for samples, rate in heard])[:, None])
