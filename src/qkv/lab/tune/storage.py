"""The Optuna study of a tuning: `study.db`, a SQLite file that Optuna's dashboard reads too."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...core.optional_libraries import need
from ...runs.recipes.recipe import Recipe

if TYPE_CHECKING:
    from optuna import Study, Trial

DATABASE, NAME = "study.db", "qkv"
_STARTUP = 5  # trials that are trained whole before any is pruned


def optuna() -> ModuleType:
    """The library. Raises ValueError with what to install if it is missing."""
    need("qkv tune", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(path: Path, recipe: Recipe, pruner: str, sampler: str = "tpe") -> Study:
    """Open the study in a file, or make it. Its sampler draws other values than before it was interrupted."""
    library = optuna()
    storage = library.storages.RDBStorage(
        f"sqlite:///{path.resolve()}", engine_kwargs={"connect_args": {"timeout": 60}}
    )
    direction = "minimize" if recipe.training.mode == "min" else "maximize"
    study = library.create_study(
        storage=storage,
        study_name=NAME,
        direction=direction,
        load_if_exists=True,
        pruner=_pruner(library, recipe, pruner),
    )
    seed = recipe.seed + len(study.trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samplers = library.samplers
        study.sampler = samplers.RandomSampler(seed=seed) if sampler == "random" else samplers.TPESampler(seed=seed)
    return study


def trial_of(study: Study, number: int) -> Trial:
    """The trial of this number, to report to."""
    return optuna().trial.Trial(study, study.trials[number]._trial_id)


def _pruner(library: Any, recipe: Recipe, name: str) -> Any:
    every, steps = recipe.training.eval_every, recipe.training.max_steps
    first = every if isinstance(every, int) else 1
    if name == "none":
        return library.pruners.NopPruner()
    if name == "hyperband":
        return library.pruners.HyperbandPruner(min_resource=first, max_resource=steps or "auto")
    return library.pruners.MedianPruner(n_startup_trials=_STARTUP, n_warmup_steps=first)
