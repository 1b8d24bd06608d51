"""Classification of picture, sound and video files by a run or a Hub model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ...io.directories.preprocessor import Preprocessor
from ...nn.models.heads.vision import ImageClassifier
from ...nn.models.transformer import Transformer
from ..tasks.classes import Classified
from .classify import labels_of, ranked
from .loaded import LoadedModel, has_towers
from .towers import zero_shot

_AT_ONCE = 64  # files in a batch


@torch.inference_mode()
def classify_files(
    run: LoadedModel,
    paths: Sequence[str | Path],
    classes: str | Sequence[str] = (),
    templates: str | Sequence[str] = (),
) -> list[Classified]:
    """Classify the picture, sound or video in each file, resized and normalized as in training, or for a Hub model as its
    `preprocessor_config.json` says. A dual encoder chooses among `classes`, see `zero_shot`.

    Raises ValueError if the run does not classify such files, or a file holds none.
    """
    if has_towers(run):
        if not classes:
            raise ValueError(f"{run.name} compares pictures with names of classes; name them: --classes cat,dog")
        return zero_shot(run, paths, classes, templates)
    if classes or templates:
        raise ValueError(
            f"{run.name} knows its classes from training, and chooses among no others; leave out classes and templates"
        )
    task, head = run.trained_on, run.model.spec.head
    if task is not None and task.tells_classes and not task.needs_tokenizer:
        return [one.value for one in task.predict(run, [str(path) for path in paths])]
    if task is not None or run.path is None or not isinstance(head, ImageClassifier):
        raise ValueError(
            f"{run.name} does not classify pictures, sounds or videos; train one that does by "
            "`qkv train vit`, `qkv train speech` or `qkv train video`"
        )
    assert isinstance(run.model.spec, Transformer)  # no other model has a head for images
    processor, classes = Preprocessor.of(run.path, run.model.spec), labels_of(run, head.labels)
    predictions: list[Classified] = []
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        numbers = [processor.numbers(processor.read(path), str(path)) for path in some]
        inputs = torch.from_numpy(np.stack(numbers)).to(run.model.device)
        predictions += ranked(run, classes, run.model(inputs).float().cpu())
    return predictions
