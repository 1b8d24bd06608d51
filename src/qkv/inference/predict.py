"""What a trained run says of new inputs: what an evaluation would have said of the same, without knowing the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ..data.task import Task
from ..tasks.captioning.predict import captioned
from ..tasks.captioning.task import Caption
from ..tasks.detection.metric import SHOWN
from ..tasks.detection.predict import detected
from ..tasks.detection.task import Detect
from ..tasks.forecasting.predict import forecast
from ..tasks.forecasting.task import Forecast
from ..tasks.image_classification.task import ImageClassify
from ..tasks.multiple_choice.predict import chosen
from ..tasks.multiple_choice.task import Choice
from ..tasks.music.predict import played
from ..tasks.music.task import Music
from ..tasks.prediction import Prediction
from ..tasks.question_answering.predict import answered
from ..tasks.question_answering.task import Answer
from ..tasks.segmentation.predict import segmented
from ..tasks.segmentation.task import Segment
from ..tasks.sound_classification.task import Sound
from ..tasks.tagging.predict import tagged
from ..tasks.tagging.task import Tag
from ..tasks.text_classification.task import Classify
from ..tasks.text_regression.predict import scored, similar
from ..tasks.text_regression.task import Regress
from ..tasks.text_similarity.task import Similarity
from .loaded import LoadedModel
from .predict_by_head import asked_by_head
from .predict_classes import files_classified, texts_classified
from .uses import advice, name_of

__all__ = ["Prediction", "needs_none", "predict"]


@torch.inference_mode()
def predict(
    run: LoadedModel, inputs: Sequence[str | Path], *, threshold: float = SHOWN, seed: int = 0
) -> Iterator[Prediction]:
    """What the run says of each input, by its task, or by its head where it is a model of the Hub: texts, or the files of
    pictures, videos, series, sounds and music; these one after the other.

    threshold: how sure a detector has to be of an object, for it to be one.
    seed:      of what is drawn by chance: music.

    Raises ValueError where an input can't be read, or where the run's task leaves nothing to be asked.
    """
    given = [str(one) for one in inputs]
    for number, one in enumerate(given, 1):
        if not one.strip():
            raise ValueError(f"input {number} is empty, so there is nothing to read")
    if not given and not needs_none(run):
        return
    recipe = run.recipe
    if recipe is None:
        yield from asked_by_head(run, given, threshold)
        return
    match recipe.task:
        case Music() as task:
            yield from played(run, task, recipe.data, given, seed)
        case Tag() as task:
            yield from tagged(run, task, given)
        case Answer() as task:
            yield from answered(run, task, given)
        case Choice() as task:
            yield from chosen(run, task, given)
        case Regress() as task:
            yield from scored(run, task, given)
        case Similarity():
            yield from similar(run, given)
        case Classify():
            yield from texts_classified(run, given)
        case Detect() as task:
            yield from detected(run, task, given, threshold)
        case Segment() as task:
            yield from segmented(run, task, given)
        case Caption() as task:
            yield from captioned(run, task, given)
        case Forecast() as task:
            yield from (forecast(run, task, recipe.data, path) for path in given)
        case ImageClassify() | Sound():
            yield from files_classified(run, given)
        case task:
            raise ValueError(_otherwise(run, task))


def needs_none(run: LoadedModel) -> bool:
    """Whether a run has something to say without an input."""
    return run.recipe is not None and isinstance(run.recipe.task, Music)


def _otherwise(run: LoadedModel, task: Task | None) -> str:
    """What to do with a run that can't be asked."""
    taught = "texts as they are, without a task" if task is None else f"the task {task.kind!r}"
    return f"{name_of(run)} was trained on {taught}, which leaves nothing to predict; {advice(run)}"
