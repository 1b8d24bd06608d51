"""`qkv classify`: the classes of texts, pictures or sounds, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .say import echo
from .texts import Device, Json, RunPath, dumps, each, note_settings, opened

if TYPE_CHECKING:
    from ..inference.classify import Classified


def classify(
    run: RunPath,
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
    """Tell what class each text, picture, sound or video is of: the likeliest first, each class with its probability.

    A blank line gives a blank line.
    """
    from ..tasks.classes import likeliest, split_pairs

    loaded = opened(run, "classify", device)
    note_settings(texts, "`qkv classify` has no settings, leave it out")

    def ask(given: list[str]) -> list[Classified]:
        return loaded.classify(*split_pairs(given)) if loaded.tokenizer is not None else loaded.classify_files(given)

    for text, found in each(texts, ask):
        if json:
            label, shares = (None, {}) if found is None else (found.label, found.probabilities)
            echo(dumps({"text": text, "label": label, "probabilities": shares}))
        else:
            echo("" if found is None else f"{likeliest(found)}\t{text}")
