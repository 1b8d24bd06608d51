"""`qkv classify`: the classes of texts, pictures or sounds, with their probabilities."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from .texts import Device, Json, read


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a classifier of the Hub.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts, pairs of texts as `TEXT<tab>TEXT`, or, for a model of pictures, sounds or videos, their files. "
            "Without any, lines of standard input.",
        ),
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Tell what class each text, picture, sound or video is of: the likeliest first, each class with its probability."""
    from ..run.load import load
    from ..run.predict.classes import likeliest, sides

    loaded = load(run, device=device)
    for chunk in read(texts):
        made = loaded.classify(*sides(chunk)) if loaded.tokenizer is not None else loaded.classify_files(chunk)
        for text, found in zip(chunk, made, strict=True):
            if json:
                typer.echo(
                    dumps(
                        {"text": text, "label": found.label, "probabilities": found.probabilities}, ensure_ascii=False
                    )
                )
            else:
                typer.echo(f"{likeliest(found)}\t{text}")
