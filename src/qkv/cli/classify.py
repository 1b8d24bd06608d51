"""`qkv classify`: the classes of texts, images, sounds or videos, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import MORE_RUNS, Column, Device, EnsembleMode, EnsembleWeights, JsonLines, OutTable, Overwrite, RunPath
from .say import echo
from .texts import asked, dumps, load_runs, one_line, warn_of_settings

if TYPE_CHECKING:
    from ..runs.inference.classify import Classified


def classify(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]... [TEXT]...",
            help=MORE_RUNS
            + "Texts, pairs of texts as `TEXT<tab>TEXT`, or files of images, sounds or videos; or one file of them "
            "(`.csv`, `.tsv`, `.jsonl`, `.parquet`, `.txt`), or a folder of images, sounds or videos. Without any, lines "
            "of standard input.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME…",
            help="A dual encoder such as CLIP: the classes to choose among, by their names (zero-shot classification).",
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A text with `{}` for the name of a class; repeatable, the vectors are averaged. [default: of the run's "
            "training, or `a photo of a {}`]",
        ),
    ] = None,
    out: OutTable = None,
    column: Column = None,
    overwrite: Overwrite = False,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Classify texts, images, sounds or videos, as `qkv predict` does for every task: the classes by probability.

    A blank line gives a blank line. A dual encoder chooses among --classes that it was never trained for.
    """
    from ..runs.inference.tables.columns import reads_files as takes_files
    from ..runs.inference.tables.write import class_columns
    from ..runs.tasks.classes import likeliest, split_pairs

    loaded, texts = load_runs(run, texts, "classify", device, ensemble_weights, ensemble_mode)
    warn_of_settings(texts, "`qkv classify` has no settings, leave it out")

    reads_files = takes_files(loaded, "classify")
    if (classes or template) and not reads_files:
        raise ValueError(
            f"{loaded.name} classifies texts by the classes of its training; leave out --classes and --template"
        )

    def answer(inputs: list[str]) -> list[Classified]:
        if not reads_files:
            return loaded.classify(*split_pairs(inputs))
        return loaded.classify_files(inputs, classes or (), template or ())

    def show(text: str, result: Classified | None) -> None:
        if json:
            label, probabilities = (None, {}) if result is None else (result.label, result.probabilities)
            echo(dumps({"text": text, "label": label, "probabilities": probabilities}))
        else:
            echo("" if result is None else f"{likeliest(result)}\t{one_line(text)}")

    question = asked(texts, loaded, "classify", out, column, overwrite)
    question.answer(answer, show, class_columns, noun="file" if reads_files else "text")
