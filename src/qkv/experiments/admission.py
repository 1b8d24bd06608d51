"""Checks before training: the run directory is free or can be resumed, and the machine supports the settings."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import torch

from ..core.spec import brief
from ..cost.hardware import cores
from ..data.batching.settings import Batching
from ..directories.layout import State
from ..recipes.recipe import Recipe
from ..training.compiling import check_compiler
from ..training.mixed_precision import check_device
from ..training.run_log import check_loggers
from ..training.settings import Training
from .auto_settings import adopt

# What a resumed run may change: nothing that was used up to the step it goes on from.
CHANGEABLE = ("description", "imports*", "evaluation.*", "generation.*", "batching.workers", "batching.cache")
CHANGEABLE_TRAINING = (
    *("max_steps", "max_epochs", "max_time", "patience", "min_delta", "max_bad_steps"),
    *("eval_every", "save_every", "log_every", "keep", "metric", "mode", "final"),
    *("optimizer", "schedule", "clip_norm", "clip_value"),  # but for the optimizer's kind, whose state goes on
    *("compile", "recompute", "tensorboard", "wandb"),
)
WORKERS_A_CORE = 4  # processes that read data; more only wait for one another


def check_machine(training: Training, batching: Batching, device: torch.device) -> None:
    """That the machine can do what the settings ask for. Raises ValueError."""
    check_loggers(training.tensorboard, training.wandb)
    there = cores()
    if batching.processes > WORKERS_A_CORE * there:
        raise ValueError(
            f"batching.workers is {batching.processes}, and this machine has {there} cores; give at most "
            f"{WORKERS_A_CORE * there}, or auto (the batches are the same)"
        )
    if training.precision != "auto":
        check_device(training.precision, device)
    if training.compile is True:
        check_compiler(device)


def admit(recipe: Recipe, out: Path, resume: bool, overwrite: bool) -> Recipe:
    """The recipe, with what is on `auto` as the run has it that goes on in the directory. Raises ValueError, which says
    what may be done instead, where the directory can't be used as asked."""
    state = State.of(out)
    if state is State.FOREIGN:
        raise ValueError(f"{out} exists and is no run of qkv, so it is left alone; give another directory with --out")
    if state is State.FREE or overwrite:
        return recipe
    if not resume:
        how = "a finished run" if state is State.FINISHED else "a run that was not finished"
        raise ValueError(
            f"{out} holds {how}; --resume goes on with it, --overwrite replaces it, --out takes another place"
        )
    saved = Recipe.load(out)
    recipe = recipe.model_copy(update={"training": adopt(recipe.training, saved.training)}).resolve_data_as(saved)
    vocab_size = saved.model.sizes.get("vocab_size")
    vocab_size = vocab_size if isinstance(vocab_size, int) else recipe.vocab_size
    given = recipe.resolve(vocab_size)  # and so is what was saved: presets may have more sizes now
    different = {path: pair for path, pair in saved.resolve(vocab_size).diff(given).items() if not _changeable(path)}
    if different:
        said = "; ".join(
            f"{path} is {brief(old)} there and {brief(new)} here" for path, (old, new) in list(different.items())[:3]
        )
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ValueError(
            f"{out} can't be resumed with another recipe: {said}{more}; `qkv train {out} --resume` goes on with its own, "
            "--overwrite replaces the run (docs/reliability.md lists what may change)"
        )
    return recipe


def _changeable(path: str) -> bool:
    first, _, rest = path.partition(".")
    if first == "training":
        return rest.partition(".")[0] in CHANGEABLE_TRAINING and rest != "optimizer.kind"
    return any(fnmatch(path, pattern) for pattern in CHANGEABLE)
