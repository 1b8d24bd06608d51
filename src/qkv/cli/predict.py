"""`qkv predict`: what a trained run says of new inputs, by the task that it was trained on."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .texts import Device, Json, read

if TYPE_CHECKING:
    from ..run.predict import Prediction


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model of the Hub.")],
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
    """Ask a trained run about new inputs: classes, tags, answers, masks, boxes, captions, forecasts, music, choices."""
    from ..run.load import load
    from ..run.predict import needs_none
    from ..run.predict import predict as ask

    loaded = load(run, device=device)
    names: set[str] = set()
    for chunk in read(inputs) if inputs or not needs_none(loaded) else [[]]:
        for one in ask(loaded, chunk, threshold=threshold, seed=seed):
            if out is not None:
                _write(one, out, names)
            typer.echo(dumps({"input": one.input, **one.fields}, ensure_ascii=False) if json else one.said)


def _write(one: Prediction, folder: Path, names: set[str]) -> None:
    """The files of a prediction. Raises ValueError where an input before it has made some of these names."""
    if one.name in names:
        raise ValueError(f"two inputs are named {one.name!r}; give each a folder of its own by --out")
    names.add(one.name)
    one.write(folder)
