"""Changes to how a task finds its outputs, for one evaluation: beams, and language models."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.spec import brief, nearest
from ...data.task import Task


def changed_decoding(task: Task | None, settings: Sequence[str], num_beams: int | None) -> tuple[list[str], int | None]:
    """Settings of a recipe that change how its task finds outputs, and the beams that the task has no use for. Raises
    ValueError for settings that more than outputs depends on."""
    if task is None:
        if settings:
            raise ValueError(
                "this run has no task, so --task has no settings to change; --num-beams changes its search"
            )
        return [], num_beams
    changes = [item.removeprefix("task.") for item in settings]
    for item in changes:
        name = item.partition("=")[0]
        if name not in task.decoding:
            known = nearest(name, task.decoding) if task.decoding else "leave it out"
            raise ValueError(
                f"the task {task.kind} has no setting {brief(name)} that an evaluation may change; {known}"
            )
    if num_beams is not None and "beams" in task.decoding:
        changes, num_beams = [*changes, f"beams={num_beams}"], None
    return [f"task.{item}" for item in changes], num_beams
