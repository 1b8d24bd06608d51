"""`qkv predict`: what a trained run says of new inputs, by the task that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .say import echo
from .texts import CHUNK, Device, Json, RunPath, dumps, each, note_settings, opened

if TYPE_CHECKING:
    from ..inference.predict import Prediction

FILES = 16  # files of standard input whose predictions are in memory at once, masks among them


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
    from ..inference.predict import predict as ask
    from ..inference.predict import predicts_without_input
    from ..inference.uses import reads_text

    loaded = opened(run, "predict", device)
    note_settings(inputs, "a run is asked as it was trained, leave it out")
    options: dict[str, Any] = {"threshold": threshold, "seed": seed}
    answers: Iterable[tuple[str, Iterable[Prediction] | None]]
    if inputs:
        answers = _streamed(inputs, lambda texts: ask(loaded, texts, **options))
    elif predicts_without_input(loaded):
        answers = [("", ask(loaded, [], **options))]
    else:
        at_once = CHUNK if reads_text(loaded) else FILES
        answers = each(None, lambda lines: ([one] for one in ask(loaded, lines, **options)), at_once)
    names: set[str] = set()
    for text, predictions in answers:
        if predictions is None:
            echo(dumps({"input": text}) if json else "")
        for prediction in predictions or ():
            if out is not None:
                _write(prediction, out, names)
            echo(dumps({"input": prediction.input, **prediction.fields}) if json else prediction.text)


def _streamed(
    inputs: list[str], ask: Callable[[list[str]], Iterable[Prediction]]
) -> Iterator[tuple[str, Iterable[Prediction] | None]]:
    """Each blank input with None; the predictions of those between as they come, so that few masks are in memory."""
    for blank, texts in groupby(inputs, key=lambda text: not text.strip()):
        if blank:
            yield from ((text, None) for text in texts)
        else:
            yield "", ask(list(texts))


def _write(one: Prediction, folder: Path, names: set[str]) -> None:
    """The files of a prediction. Raises ValueError where an input before it has made some of these names."""
    if one.name in names:
        raise ValueError(f"two inputs are named {one.name!r}; give each a folder of its own by --out")
    names.add(one.name)
    one.write(folder)
