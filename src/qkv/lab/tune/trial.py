"""Train one trial of a tuning: report its evaluations to Optuna, stop it if it is pruned, and return its best value."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...core import yamls
from ...io.directories.layout import METRICS
from ...look.training_history import History
from ...runs.recipes.recipe import Recipe
from ...runs.train.train import train
from ...training.logging.metrics_file import read_metrics
from ...training.result import Diverged
from .storage import open_study, trial_of

Status = Literal["finished", "pruned", "diverged", "failed"]


@dataclass(frozen=True)
class TrialJob:
    """One trial to train: its recipe in YAML, so it can be sent to another process, and where the study is."""

    study: Path
    number: int
    recipe: str
    folder: Path
    device: str
    pruner: str


@dataclass(frozen=True)
class TrialResult:
    """value: the best evaluation; None if there was none. message: why it failed."""

    status: Status
    value: float | None = None
    steps: int = 0
    seconds: float = 0.0
    message: str = ""
    points: list[tuple[float, float]] = field(default_factory=list)


class TrialPruned(Exception):
    """Raised in a training to stop it: its evaluations are worse than other trials'."""


def train_trial(job: TrialJob) -> TrialResult | None:
    """Train a trial, continuing it if it has begun; None if it was interrupted. A divergence, and settings that don't fit
    together, are results."""
    recipe = Recipe.from_tree(yamls.load(job.recipe, "the recipe of a trial"))
    trial = trial_of(open_study(job.study, recipe, job.pruner), job.number)
    seen = set(trial.study.trials[job.number].intermediate_values)
    metric = recipe.training.metric

    def report(record: dict[str, Any]) -> None:
        value = record.get(metric)
        if record.get("type") != "eval" or not isinstance(value, int | float) or not math.isfinite(value):
            return
        if record["step"] not in seen:
            seen.add(record["step"])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial.report(float(value), int(record["step"]))
        if trial.should_prune():
            raise TrialPruned

    try:
        trained = train(recipe, job.folder, resume=True, device=job.device, callbacks=[report])
    except TrialPruned:
        return _result("pruned", job.folder, recipe)
    except Diverged as error:
        return _result("diverged", job.folder, recipe, str(error))
    except ValueError as error:
        return TrialResult("failed", message=str(error))
    return None if trained.evaluation is None else _result("finished", job.folder, recipe)


def _result(status: Status, folder: Path, recipe: Recipe, message: str = "") -> TrialResult:
    history = History.of(read_metrics(folder / METRICS)) if (folder / METRICS).is_file() else History()
    points = history.series("eval", recipe.training.metric)
    values = [value for _, value in points if math.isfinite(value)]
    if status == "finished" and not values:
        known = ", ".join(key for key in history.keys("eval") if key not in ("elapsed", "type"))
        message = f"training.metric={recipe.training.metric} is not among the evaluations ({known}); choose one of them"
        return TrialResult("failed", message=message)
    best = (min if recipe.training.mode == "min" else max)(values, default=None)
    steps = max((step for step, _ in history.series("train", "elapsed")), default=0)
    seconds = max((history.last(table, "elapsed") or 0.0 for table in ("train", "eval")), default=0.0)
    return TrialResult(status, best, int(steps), seconds, message, [(float(x), float(y)) for x, y in points])
