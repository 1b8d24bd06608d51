"""Checks before training: of the run directory, the machine, the data and the model's context."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import torch

from ...core.atomic import check_replaceable
from ...core.metrics.text import LIBRARIES
from ...core.optional_libraries import need
from ...core.spec import brief, counted
from ...data.batching.settings import Batching
from ...data.source import SPLITS, Example, Skipped, Split
from ...io.directories.layout import RUN, RunState
from ...nn.cost.hardware import cores
from ...nn.models.base import ModelSpec
from ...training.compiling import check_compiler
from ...training.mixed_precision import check_device
from ...training.run_log import check_loggers
from ...training.settings import Training
from ..recipes.recipe import Recipe, argument_of
from .auto_settings import adopt
from .notes import longest_rows

_LOOKED = 10_000  # entries of a split without examples whose reasons are counted

# Settings that may change when a run is resumed, because they don't affect the steps already taken.
CHANGEABLE = (
    "description",
    "imports*",
    "evaluation.*",
    "generation.*",
    "scale.*",
    "batching.workers",
    "batching.cache",
)
CHANGEABLE_TRAINING = (
    *("max_steps", "max_epochs", "max_time", "patience", "min_delta", "max_bad_steps"),
    *("eval_every", "save_every", "log_every", "keep", "metric", "mode", "final"),
    *("optimizer", "schedule", "clip_norm", "clip_value"),  # except the optimizer's kind, because its state is kept
    *("compile", "recompute", "tensorboard", "wandb"),
)
WORKERS_A_CORE = 4  # processes per core that read data; more would only wait for one another


def check_machine(training: Training, batching: Batching, device: torch.device) -> None:
    """Check that this machine supports the settings. Raises ValueError."""
    check_loggers(training.tensorboard, training.wandb)
    available = cores()
    if batching.processes > WORKERS_A_CORE * available:
        raise ValueError(
            f"batching.workers is {batching.processes}, and this machine has {counted(available, 'core')}; give at most "
            f"{WORKERS_A_CORE * available}, or auto (the batches are the same)"
        )
    if training.precision != "auto":
        check_device(training.precision, device)
    if training.compile is True:
        check_compiler(device)


def check_libraries(recipe: Recipe) -> None:
    """Check that the optional libraries that a recipe needs are installed. Raises ValueError with the command that installs
    them."""
    metrics = (*(recipe.evaluation.metrics or ()), recipe.training.metric)
    of_metrics = (LIBRARIES[name] for name in metrics if name in LIBRARIES)
    of_task = () if recipe.task is None else recipe.task.libraries
    need(f"the recipe {recipe.name}", *dict.fromkeys((*recipe.data.libraries, *of_task, *of_metrics)))


def admit(recipe: Recipe, out: Path, resume: bool, overwrite: bool) -> Recipe:
    """Check that `out` is free, or can be resumed or overwritten. Returns the recipe; a resumed one with `auto` replaced by
    the saved choices. Raises ValueError, with what to do instead, if the directory can't be used."""
    state = RunState.of(out)
    if state is RunState.FOREIGN:
        raise ValueError(
            f"{out} exists and is not a run of qkv, so it is left alone; give another directory with --out"
        )
    if state is RunState.FREE:
        return recipe
    if overwrite:
        check_replaceable(out, RUN.check)
        return recipe
    if not resume:
        kind = "a finished run" if state is RunState.FINISHED else "an unfinished run"
        raise ValueError(
            f"{out} holds {kind}; continue it with --resume, replace it with --overwrite, or choose another directory with "
            "--out"
        )
    saved = Recipe.load(out)
    recipe = recipe.model_copy(update={"training": adopt(recipe.training, saved.training)}).resolve_data_as(saved)
    vocab_size = saved.model.sizes.get("vocab_size")
    vocab_size = vocab_size if isinstance(vocab_size, int) else recipe.vocab_size
    resolved = recipe.resolve(vocab_size)  # the saved one too, because presets may have more sizes now
    different = {path: pair for path, pair in saved.resolve(vocab_size).diff(resolved).items() if not _changeable(path)}
    if different:
        listed = "; ".join(
            f"{path} is {brief(old)} there and {brief(new)} here" for path, (old, new) in list(different.items())[:3]
        )
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ValueError(
            f"{out} can't be resumed with another recipe: {listed}{more}; continue with its own "
            f"(qkv train {argument_of(out)} --resume), or replace the run with --overwrite (docs/reliability.md lists what "
            "may change)"
        )
    return recipe


def _changeable(path: str) -> bool:
    first, _, rest = path.partition(".")
    if first == "training":
        return rest.partition(".")[0] in CHANGEABLE_TRAINING and rest != "optimizer.kind"
    return any(fnmatch(path, pattern) for pattern in CHANGEABLE)


def first_examples(recipe: Recipe) -> dict[Split, Example]:
    """The first example of each split. Raises ValueError if a split can't be read or is empty."""
    examples: dict[Split, Example] = {}
    for split in SPLITS:
        example = next(recipe.data.examples(split, seed=recipe.seed, shuffle=False), None)
        if example is None:
            raise ValueError(f"the {split} split of the data has no examples{_why_empty(recipe, split)}")
        if recipe.task is not None:
            recipe.task.check_fields(example, recipe.data)
        examples[split] = example
    return examples


def _why_empty(recipe: Recipe, split: Split) -> str:
    """How many entries of a split are skipped for the most frequent reason, among the first ones."""
    table = recipe.data.table(split, seed=recipe.seed, epoch=0)
    entries = (table[i] for i in range(min(len(table), _LOOKED)))
    reasons = Counter(str(entry) for entry in entries if isinstance(entry, Skipped))
    return "".join(f": {times:,} {reason}" for reason, times in reasons.most_common(1))


def check_context(recipe: Recipe, spec: ModelSpec) -> None:
    """Check that no batch can have rows longer than the model's context. Raises ValueError."""
    longest, name = longest_rows(recipe, spec)
    if spec.max_positions is not None and longest > spec.max_positions:
        trained = recipe.model.directory is not None
        raise ValueError(
            f"batching.{name} is {longest}, longer than the model's context of {spec.max_positions} positions; "
            f"lower it (batching.{name}={spec.max_positions})" + ("" if trained else ", or raise model.max_positions")
        )
