"""Train by a recipe: check everything, train, evaluate on the test split, and write the run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ...core.atomic import put_back
from ...core.device import choose
from ...data.loader.stream import Stream
from ...io.directories.layout import RunState, clear, is_stub, tidy
from ...io.directories.lock import locked
from ...nn.cost.throughput import flops_per_token, peak_flops
from ...training.logging.metrics_file import Callback
from ...training.loop import fit
from ...training.mixed_precision import DTYPES
from ...training.parallel.team import team
from ...training.result import TrainingResult
from ...training.strategy import Strategy
from ..recipes.recipe import Recipe
from ..report.start import note_threads
from .admission import admit, check_libraries, check_machine
from .fingerprint import fingerprint
from .finish import Trained, Validation, check_metric, finish
from .first_files import write_first_files
from .initial import initial_model
from .notes import data_summary
from .prepare import Prepared, prepare, tell


def train(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
    command: str | None = None,
    keep_outputs: bool = False,
) -> Trained:
    """Train by a recipe, evaluate on its test split, and write the run directory `out`.

    resume:    continue the run in `out` from its last save, bit for bit; start from the beginning if there is none.
    overwrite: replace the run in `out`, which is kept beside as `.old-NAME` until the new one is finished. A directory that
               holds anything but a run is never touched.
    callbacks: called with every record of `metrics.jsonl`.
    command:   the command line that trains this, for the report.
    keep_outputs: return all outputs for pairs of the test split in `evaluation.outputs`.

    Raises ValueError, before anything is written, if recipe, data, device and directory don't fit together, or if the
    machine has too little memory.
    """
    console = console or Console(quiet=True)
    where = choose(device)
    check_libraries(recipe)
    admit(recipe, out, resume, overwrite)  # before locking, which would write into a directory that is not a run
    with team(recipe.scale, where) as members, locked(out) if members.leads else nullcontext() as extend_lock:
        console = console if members.leads else Console(quiet=True)
        recipe = members.together(lambda: admit(recipe, out, resume, overwrite))
        members.compare({**recipe.to_dict(), "--resume": resume, "--overwrite": overwrite, "--out": str(out)})
        fresh = overwrite or RunState.of(out) is RunState.FREE
        if members.leads:
            tidy(out)
        members.together(partial(check_machine, recipe.training, recipe.batching, members.device))
        prepared = members.together(lambda: prepare(recipe, out, members, resume, console))
        try:
            begin = partial(write_first_files, prepared, out, resume, overwrite, command, extend_lock, console)
            model, outcome = _fitted(prepared, out, resume, callbacks, begin, console)
            return finish(model, outcome, prepared, out, console, keep_outputs)
        except Exception:
            if members.leads and fresh and is_stub(out) and RunState.of(out) is RunState.STARTED:
                clear(out)  # training never began: leave nothing behind
                put_back(out)
            raise


def _fitted(
    prepared: Prepared,
    out: Path,
    resume: bool,
    callbacks: Sequence[Callback],
    write_files: Callable[[list[str]], None],
    console: Console,
) -> tuple[Any, TrainingResult]:
    """Return the trained model. All settings are known to fit together before the first files are written."""
    recipe, members = prepared.recipe, prepared.members
    precision = recipe.training.precision
    assert precision != "auto" and prepared.first is not None, "`prepare` has chosen one and read the other"
    model, values, notes = initial_model(prepared, console)
    if values is None:
        check_metric(model, prepared)
    strategies: list[Strategy] = []
    opened: list[Stream] = []

    def distribute(model: nn.Module) -> Strategy:
        strategies.append(members.distribute(model, values))
        return strategies[0]

    def open_stream(position: dict[str, Any] | None) -> Stream:
        opened.append(prepared.open(position))
        return opened[-1]

    def begin() -> None:
        if values is not None:
            strategies[0].gather()
            check_metric(model, prepared)
            strategies[0].scatter()
        if members.leads:
            write_files(notes)
        members.ranks.barrier()

    outcome = fit(
        model,
        open_stream,
        recipe.objective,
        recipe.training,
        out=out,
        seed=recipe.seed,
        evaluate=Validation(prepared, console),
        resume=resume,
        begin=begin,
        fingerprint=fingerprint(recipe.data, prepared.tokenizer, recipe.seed),
        ranks=members.ranks,
        distribute=distribute,
        flops_per_token=flops_per_token(prepared.spec, prepared.first),
        peak_flops=(peak_flops(prepared.device, DTYPES[precision]) or 0) * members.ranks.size or None,
        console=console,
        callbacks=[*callbacks, partial(note_threads, out)],
    )
    tell(console, f"{str(outcome)[0].upper()}{str(outcome)[1:]}.")
    if opened and (opened[-1].report.skipped or opened[-1].report.cut):
        tell(console, f"{data_summary(opened[-1].report, recipe.data.notes())}.")
    return model, outcome
