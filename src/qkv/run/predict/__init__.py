"""What a trained run says of new inputs: what an evaluation would have said of the same, without knowing the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...data.judges.located import SHOWN
from ...data.task import Task
from ...data.tasks.answer import Answer
from ...data.tasks.detect import Detect
from ...data.tasks.forecast import Forecast
from ...data.tasks.segment import Segment
from ...data.tasks.tag import Tag
from .answers import answered
from .boxes import detected
from .masks import segmented
from .prediction import Prediction
from .series import forecast
from .tags import tagged

if TYPE_CHECKING:
    from ..load import Run

__all__ = ["Prediction", "predict"]


@torch.inference_mode()
def predict(run: Run, inputs: Sequence[str | Path], *, threshold: float = SHOWN) -> list[Prediction]:
    """What the run says of each input, by its task: texts, or the files of pictures, series and music.

    threshold: how sure a detector has to be of an object, for it to be one.

    Raises ValueError where an input can't be read, or where what the run was trained on is no question to be asked.
    """
    task = _task(run)
    given = [str(one) for one in inputs]
    for number, one in enumerate(given, 1):
        if not one.strip():
            raise ValueError(f"input {number} is empty, so there is nothing to read")
    match task:
        case Tag():
            return tagged(run, task, given)
        case Answer():
            return answered(run, task, given)
        case Detect():
            return detected(run, task, given, threshold)
        case Forecast():
            assert run.recipe is not None
            return [forecast(run, task, run.recipe.data, path) for path in given]
        case Segment():
            return list(segmented(run, task, given))
        case _:
            raise ValueError(f"{_name(run)} was trained on the task {task.kind!r}, {_OTHERWISE}")


_OTHERWISE = "which is nothing to be asked about: take it further by qkv train, or ask qkv embed for its vectors"


def _task(run: Run) -> Task:
    """Raises ValueError where a run has none."""
    if run.recipe is None:
        raise ValueError(
            f"{_name(run)} has no recipe.yaml, which says what it was taught; give a run that `qkv train` made"
        )
    if run.recipe.task is None:
        raise ValueError(f"{_name(run)} writes texts and has no other task; ask it by qkv generate or qkv translate")
    return run.recipe.task


def _name(run: Run) -> str:
    return str(run.path or "this run")
