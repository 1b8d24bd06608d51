"""Train the runs of a ladder, one after the other or several at a time, and record each outcome at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ...core import yamls
from ...io.directories.layout import EVALUATION, METRICS, RunState, read_json
from ...runs.recipes.recipe import Recipe
from ...runs.train.train import train
from ...training.logging.metrics_file import read_metrics
from ...training.result import Diverged
from ..studies.processes import do_all
from .ladder import Rung


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the held-out loss, or why it `diverged`; `seconds` of training; neither if it was interrupted."""

    loss: float | None = None
    seconds: float = 0.0
    diverged: str = ""

    @property
    def interrupted(self) -> bool:
        return self.loss is None and not self.diverged

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_all(rungs: Sequence[Rung], out: Path, device: str, jobs: int, record: Callable[[Rung, Outcome], None]) -> bool:
    """Train each run in its own folder below `out`, `jobs` at a time, and call `record` when it ends. A run that was
    started before continues from its last save. Returns whether all came to an end; a Ctrl-C saves and stops."""
    for rung, outcome in _outcomes(rungs, out, device, jobs):
        if outcome.interrupted:
            return False
        record(rung, outcome)
    return True


def _outcomes(rungs: Sequence[Rung], out: Path, device: str, jobs: int) -> Iterator[tuple[Rung, Outcome]]:
    todo = ((rung, (rung.recipe.to_yaml(), out / rung.name, device)) for rung in rungs)
    for rung, end in do_all(todo, _train_job, lambda *_: None, jobs):
        yield rung, end() or Outcome()


def _train_job(job: tuple[str, Path, str]) -> Outcome:
    recipe, folder, device = job
    return train_run(Recipe.from_tree(yamls.load(recipe, name="the recipe")), folder, device)


def train_run(recipe: Recipe, folder: Path, device: str) -> Outcome:
    """Train a run, or continue with it; a finished one is only read."""
    state = RunState.of(folder)
    if state is not RunState.FINISHED:
        try:
            result = train(
                recipe,
                folder,
                resume=state is RunState.STARTED,
                device=device,
                console=Console(quiet=True, force_terminal=False),
            )
        except Diverged as error:
            return Outcome(diverged=str(error))
        if result.evaluation is None:
            return Outcome()
    metrics: Mapping[str, float] = read_json(folder / EVALUATION)["metrics"]
    if "loss" not in metrics:
        raise ValueError(
            f"the evaluation of {recipe.name} gives no loss but {', '.join(metrics)}; a scaling study needs a held-out loss"
        )
    loss, seconds = float(metrics["loss"]), _last(folder, "elapsed")
    if not math.isfinite(loss):
        return Outcome(seconds=seconds, diverged="the held-out loss is not finite")
    return Outcome(loss, seconds)


def steps_done(folder: Path) -> int:
    """The last step that a run has logged; 0 before the first."""
    return int(_last(folder, "step"))


def _last(folder: Path, key: str) -> float:
    path = folder / METRICS
    values = [line[key] for line in read_metrics(path) if key in line] if path.is_file() else []
    return float(values[-1]) if values else 0.0
