"""Predict on new inputs with a trained model: by its task, or by its head if it has no recipe."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...core import several
from ...nn.models.dual_encoder import DualEncoder
from ..tasks.prediction import Line, Prediction
from . import unknown_words
from .loaded import LoadedModel
from .reading.beside import beside, files_of
from .uses import advice, reads_text

if TYPE_CHECKING:
    from .predict_by_head import HeadPrediction

__all__ = ["Prediction", "predict", "predicts_without_input"]


@torch.inference_mode()
def predict(
    run: LoadedModel,
    inputs: Sequence[str | Path | tuple[str, ...]],
    *,
    data: str | Sequence[str] = (),
    **options: Any,
) -> Iterator[Prediction]:
    """Predict on each input by the run's task, or by the head of a Hub model. Inputs are texts, or the paths of pictures,
    videos, series, sounds and music. Texts that belong together are one input: a tuple of them, or one text with tabs
    between them.

    Options of some tasks:

    threshold: the lowest probability of an object that a detector reports.
    seed:      for random sampling (music).
    images, sounds, videos: files for the placeholders `<image>`, `<sound>` and `<video>` in the texts, in order. Without
               placeholders, give one file for all texts or one for each; it comes before the text.
    data:      settings of how a series is read, such as `["gaps=fill"]` (forecasts).
    among:     a folder of pictures, a file of lines, or a list of both, in which a dual encoder finds the nearest ones.
    top:       how many of them, by default 5.

    Raises ValueError if an input can't be read, the run's task does not predict, or it does not use an option.
    """
    files = files_of(*(options.pop(name, None) for name in ("images", "sounds", "videos")))
    check_options(run, {**options, **({"data": data} if data else {})})
    if data and run.recipe is not None:
        changes = [f"data.{one.removeprefix('data.')}" for one in several.texts(data, "data")]
        run = replace(run, recipe=run.recipe.change(changes))
    texts = [Line(one) if isinstance(one, tuple) else one if isinstance(one, str) else str(one) for one in inputs]
    texts = list(beside(run, texts or [""], files)) if files else texts
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise ValueError(f"input {number} is empty, so there is nothing to read")
    if not texts and not predicts_without_input(run):
        return
    if run.recipe is None:
        head, prediction = _by_head(run)
        if prediction is None:
            has = "no head" if head is None else f"the head {head.kind}"
            raise ValueError(
                f"{run.name} has {has} and no recipe.yaml with its task, so it does not predict; "
                f"{advice(run)}, or train it on a task: model=… in a recipe"
            )
        yield from prediction.predict(run, texts, **options)
    elif run.recipe.task is None or not run.recipe.task.can_predict:
        task = run.recipe.task
        data = "texts without a task" if task is None else f"the task {task.kind!r}"
        raise ValueError(f"{run.name} was trained on {data}, which leaves nothing to predict; {advice(run)}")
    else:
        yield from run.recipe.task.predict(run, texts, **options)
    if reads_text(run):
        unknown_words.warn_of_inputs(run, texts)


_USERS = {
    "threshold": "detectors use it",
    "seed": "music uses it",
    "data": "forecasts use it",
    **dict.fromkeys(("among", "top"), "dual encoders of pictures and texts use it"),
}


def check_options(run: LoadedModel, options: Mapping[str, Any]) -> None:
    """Check that the run's task, or its head, uses these options of `predict`. Raises ValueError."""
    task = None if run.recipe is None else run.recipe.task
    by_head = None if run.recipe is not None else _by_head(run)[1]
    if by_head is not None:
        used: Collection[str] = inspect.signature(by_head.predict).parameters
    elif task is not None and task.can_predict:
        used = task.predict_options
    else:  # `predict` says so
        return
    if task is not None and task.kind == "forecast":
        used = {*used, "data"}
    if unused := [name for name in options if name not in used]:
        users = _USERS.get(unused[0], "no task uses it")
        raise ValueError(f"{run.name} predicts without a {unused[0]}; leave it out ({users})")


def _by_head(run: LoadedModel) -> tuple[Any, HeadPrediction | None]:
    """The head of a model without a recipe, and how it predicts."""
    from .predict_by_head import prediction_of_head  # imported here: it imports many tasks

    spec = run.model.spec
    head = spec if isinstance(spec, DualEncoder) else getattr(spec, "head", None)
    return head, prediction_of_head(head)


def predicts_without_input(run: LoadedModel) -> bool:
    """Whether a run predicts without an input."""
    task = run.trained_on
    return task is not None and task.predicts_without_input
