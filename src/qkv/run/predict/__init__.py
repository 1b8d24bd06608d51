"""What a trained run says of new inputs: what an evaluation would have said of the same, without knowing the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...data.judges.located import SHOWN
from ...data.task import Task
from ...data.tasks.answer import Answer
from ...data.tasks.caption import Caption
from ...data.tasks.choice import Choice
from ...data.tasks.classify import Classify
from ...data.tasks.detect import Detect
from ...data.tasks.forecast import Forecast
from ...data.tasks.image_classify import ImageClassify
from ...data.tasks.music import Music
from ...data.tasks.regress import Regress
from ...data.tasks.segment import Segment
from ...data.tasks.similarity import Similarity
from ...data.tasks.sound import Sound
from ...data.tasks.tag import Tag
from ..uses import advice, name_of
from .answers import answered
from .boxes import detected
from .captions import captioned
from .choices import chosen
from .classes import files_classified, texts_classified
from .hub import asked_by_head
from .masks import segmented
from .notes import played
from .numbers import scored, similar
from .prediction import Prediction
from .series import forecast
from .tags import tagged

if TYPE_CHECKING:
    from ..load import Run

__all__ = ["Prediction", "needs_none", "predict"]


@torch.inference_mode()
def predict(run: Run, inputs: Sequence[str | Path], *, threshold: float = SHOWN, seed: int = 0) -> Iterator[Prediction]:
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


def needs_none(run: Run) -> bool:
    """Whether a run has something to say without an input."""
    return run.recipe is not None and isinstance(run.recipe.task, Music)


def _otherwise(run: Run, task: Task | None) -> str:
    """What to do with a run that can't be asked."""
    taught = "texts as they are, without a task" if task is None else f"the task {task.kind!r}"
    return f"{name_of(run)} was trained on {taught}, which leaves nothing to predict; {advice(run)}"
