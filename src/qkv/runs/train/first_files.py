"""The first files of a run, which are written when everything is known to fit together, and the first words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ...core.atomic import beginning, make_folder, old, remove
from ...io.directories import origin as origins
from ...io.directories import preprocessor, sentence_transformers
from ...io.directories.layout import EVALUATION, ORIGIN, RECIPE, TOKENIZER, RunState, write_text
from ...io.directories.locate import locate
from ...io.directories.run_config import write_settings
from ...nn.models.heads.sequence import SentenceVector
from ...training.logging.progress_bar import span
from ..report.start import START, note_start
from .prepare import Prepared, tell
from .pretrained import keep_base, origin_after


def write_first_files(
    prepared: Prepared,
    out: Path,
    resume: bool,
    overwrite: bool,
    command: str | None,
    extend_lock: Callable[[Path], None] | None,
    console: Console,
    notes: list[str],
) -> None:
    """Write the first files of a run, and describe the training. `notes` are printed besides the notes of its
    preparation.

    With `overwrite`, a run that is in `out` is put aside until the new one is finished. `extend_lock` locks the new one.
    """
    if overwrite and RunState.of(out) is not RunState.FREE:
        with beginning(out) as new:
            if extend_lock is not None:
                extend_lock(new)
            _write(prepared, new)
            note_start(new, prepared.sizes, prepared.device, command)
        tell(console, f"The run that was in {out} is kept in {old(out)} until this one is finished.")
        resumed = False
    else:
        remove(out / EVALUATION)  # a run is finished when it has this file
        resumed = resume and (out / RECIPE).is_file()
        _write(prepared, out)
        if not (resumed and (out / START).is_file()):  # a kill may have come between
            note_start(out, prepared.sizes, prepared.device, command)
    _describe(prepared, out, resumed, notes, console)


def _write(prepared: Prepared, out: Path) -> None:
    """Write the files; the recipe first, because it marks the directory as a run."""
    recipe, spec, directory = prepared.recipe, prepared.spec, prepared.recipe.model.directory
    make_folder(out)
    write_text(out / RECIPE, recipe.to_yaml())
    if recipe.adapter is not None and directory:
        keep_base(out, directory)
    if prepared.tokenizer is not None:
        prepared.tokenizer.save(out / TOKENIZER)
    if directory and not (out / ORIGIN).is_file() and (origin := origin_after(recipe, prepared.use)) is not None:
        origins.keep(out, origin)
    if directory and (drawn := preprocessor.settings_of(recipe.task)) is not None:
        preprocessor.keep(locate(directory), out, drawn)
    if directory and isinstance(getattr(spec, "head", None), SentenceVector):
        sentence_transformers.keep(locate(directory), out)
    write_settings(out, spec, prepared.use, recipe.generation, None, prepared.tokenizer is not None)


def _describe(prepared: Prepared, out: Path, resumed: bool, notes: list[str], console: Console) -> None:
    """Describe the training. On resume, leave out the notes on data and settings, which were printed at its start."""
    recipe, tokenizer = prepared.recipe, prepared.tokenizer
    sizes = f"{prepared.spec.n_parameters:,} parameters"
    if tokenizer is not None:
        sizes += f", {tokenizer.vocab_size:,} tokens in the vocabulary"
        if recipe.source_tokenizer is not None:
            sizes += f" of targets and {tokenizer.sources.vocab_size:,} in the vocabulary of sources"
    tell(console, f"Training {recipe.name} on {prepared.device}: {sizes}, run in {out}.")
    if recipe.training.max_time is not None:
        tell(console, f"Training stops after {span(recipe.training.max_time)} at the latest.")
    if resumed:
        return
    for note in [*prepared.notes, *notes]:
        tell(console, note)
    for note in recipe.data.notes():
        tell(console, f"Data: {note}.")
