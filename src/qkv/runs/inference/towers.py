"""A dual encoder of a run or of the Hub as `Towers`, which embed pictures and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...io.directories.preprocessor import Preprocessor
from ...nn.models.dual_encoder import DualEncoder, DualEncoderModel
from ..tasks.classes import Classified
from ..tasks.image_text_retrieval.task import Retrieve, similar
from ..tasks.image_text_retrieval.towers import Towers, options_of
from ..tasks.prediction import Prediction
from . import unknown_words
from .loaded import LoadedModel

TEMPLATE, PLAIN = "a photo of a {}", "a {}"  # of models of the Hub, and of models trained here without templates


def towers_of(run: LoadedModel) -> Towers:
    """The towers of a run, which read as its task does, or for a model of the Hub as its `preprocessor_config.json` and its
    tokenizer say. Raises ValueError for another model."""
    spec = run.model.spec
    if not isinstance(spec, DualEncoder):
        raise ValueError(
            f"{run.name} is no dual encoder of pictures and texts, such as CLIP; train one by `qkv train clip`"
        )
    task = run.trained_on
    if isinstance(task, Retrieve):
        towers = task.towers(run)
    else:
        task = Retrieve().of_model(spec)
        towers = replace(task.towers(run), picture=_as_directory_says(run))

    def rows(texts: Sequence[str]) -> list[Any]:
        made = towers.rows(texts)
        unknown_words.warn(run, texts, [ids.tolist() for ids, _ in made])
        return made

    return replace(towers, rows=rows)


def _as_directory_says(run: LoadedModel) -> Callable[[str], NDArray[np.float32]]:
    """A function that reads picture files as a model of the Hub does; its settings are read when they are first needed."""

    @cache
    def processor() -> Preprocessor:
        if run.path is None:
            raise ValueError(
                "this model has no directory with a preprocessor_config.json, which says how it reads pictures"
            )
        return Preprocessor.of(run.path, cast(DualEncoder, run.model.spec).image)

    return lambda path: processor().numbers(processor().read(path), path)


def zero_shot(
    run: LoadedModel, paths: Sequence[str | Path], classes: str | Sequence[str], templates: str | Sequence[str] = ()
) -> list[Classified]:
    """Classify pictures by the names of classes that no one trained for, see `Towers.classify`.

    classes:   a list, or names separated by commas.
    templates: a text with {} for the class, or several, whose vectors are averaged. By default the first of the run's task,
               "a {}" if the task has none, and "a photo of a {}" for a model of the Hub.
    """
    task = run.trained_on
    own = (task.templates[:1] or (PLAIN,)) if isinstance(task, Retrieve) else ()
    given = (templates,) if isinstance(templates, str) else tuple(templates)
    return towers_of(run).classify([str(path) for path in paths], options_of(classes), given or own or (TEMPLATE,))


def predict_by_towers(run: LoadedModel, lines: Sequence[str], **options: Any) -> Iterable[Prediction]:
    """Predict with a dual encoder of the Hub as the task `retrieve` does."""
    return similar(towers_of(run), lines, options.get("among"), options.get("top", 5))


def of_image(run: LoadedModel) -> LoadedModel:
    """The image tower as a separate model."""
    return replace(run, model=cast(DualEncoderModel, run.model).image, tokenizer=None, task="read", recipe=None)


def of_text(run: LoadedModel) -> LoadedModel:
    """The text tower as a separate model."""
    model = cast(DualEncoderModel, run.model).text
    return replace(run, model=model, task="read" if model.decoder is None else "continue", recipe=None)
