"""`qkv predict`: what a trained run says of new inputs, by the task that it was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .say import echo
from .texts import Device, Json, RunPath, dumps, note_settings, opened, read

if TYPE_CHECKING:
    from ..inference.predict import Prediction


def predict(
    run: RunPath,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="What the run's task is on: texts, with tabs between those that belong together "
            "(`QUESTION<tab>CONTEXT`), or files. Without any, lines of standard input; of music, a new piece.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write masks, boxes, series and music there, in files named after the inputs'."
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(metavar="P", help="How sure it has to be of an object in a picture.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(metavar="N", help="Of what is drawn by chance: music.")] = 0,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Ask a trained run about new inputs: classes, tags, answers, masks, boxes, captions, forecasts, music, choices.

    A blank line gives a blank line.
    """
    from ..inference.predict import needs_none
    from ..inference.predict import predict as ask

    loaded = opened(run, "predict", device)
    note_settings(inputs, "a run is asked as it was trained, leave it out")
    names: set[str] = set()
    for given in _together(inputs) if inputs or not needs_none(loaded) else [[]]:
        if given and not given[0].strip():
            for blank in given:
                echo(dumps({"input": blank}) if json else "")
            continue
        for one in ask(loaded, given, threshold=threshold, seed=seed):
            if out is not None:
                _write(one, out, names)
            echo(dumps({"input": one.input, **one.fields}) if json else one.text)


def _together(inputs: list[str] | None) -> Iterator[list[str]]:
    """The inputs that are asked about together, and the blank ones between them."""
    for chunk in read(inputs):
        for _, group in groupby(chunk, key=lambda text: bool(text.strip())):
            yield list(group)


def _write(one: Prediction, folder: Path, names: set[str]) -> None:
    """The files of a prediction. Raises ValueError where an input before it has made some of these names."""
    if one.name in names:
        raise ValueError(f"two inputs are named {one.name!r}; give each a folder of its own by --out")
    names.add(one.name)
    one.write(folder)
