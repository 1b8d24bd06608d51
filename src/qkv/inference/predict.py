"""Predictions of a trained model on new inputs: by its task, or by its head where it has no recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ..tasks.prediction import Prediction
from .loaded import LoadedModel
from .predict_by_head import prediction_of_head
from .uses import advice, name_of

__all__ = ["Prediction", "predict", "predicts_without_input"]


@torch.inference_mode()
def predict(run: LoadedModel, inputs: Sequence[str | Path], **options: float) -> Iterator[Prediction]:
    """A prediction for each input, by the run's task, or by the head of a Hub model: inputs are texts, or the files of
    pictures, videos, series, sounds and music.

    Options that some task takes:

    threshold: how likely an object has to be, for a detector to report it.
    seed:      of random sampling: music.

    Raises ValueError where an input can't be read, or where the run's task does not predict.
    """
    given = [str(one) for one in inputs]
    for number, one in enumerate(given, 1):
        if not one.strip():
            raise ValueError(f"input {number} is empty, so there is nothing to read")
    if not given and not predicts_without_input(run):
        return
    if run.recipe is None:
        head = getattr(run.model.spec, "head", None)
        known = prediction_of_head(head)
        if known is None:
            has = "no head" if head is None else f"the head {head.kind}"
            raise ValueError(
                f"{name_of(run)} has {has} and no recipe.yaml that says what it was taught, so it answers nothing; "
                f"{advice(run)}, or train it on a task: model=… in a recipe"
            )
        yield from known.predict(run, given, **options)
    elif run.recipe.task is None or not run.recipe.task.can_predict:
        raise ValueError(_cannot_predict(run))
    else:
        yield from run.recipe.task.predict(run.for_task, given, **options)


def predicts_without_input(run: LoadedModel) -> bool:
    """Whether a run predicts without an input."""
    task = run.trained_on
    return task is not None and task.predicts_without_input


def _cannot_predict(run: LoadedModel) -> str:
    task = run.trained_on
    taught = "texts as they are, without a task" if task is None else f"the task {task.kind!r}"
    return f"{name_of(run)} was trained on {taught}, which leaves nothing to predict; {advice(run)}"
