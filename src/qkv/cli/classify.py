"""`qkv classify`: the classes of texts, images, sounds or videos, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Device, JsonLines, RunPath
from .say import echo
from .texts import dumps, each, load_run, warn_of_settings

if TYPE_CHECKING:
    from ..inference.classify import Classified


def classify(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts, pairs of texts as `TEXT<tab>TEXT`, or files of images, sounds or videos. Without any, lines of "
            "standard input.",
        ),
    ] = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Classify texts, images, sounds or videos: the classes with their probabilities, the most probable first.

    A blank line gives a blank line.
    """
    from ..tasks.classes import likeliest, split_pairs

    loaded = load_run(run, "classify", device)
    warn_of_settings(texts, "`qkv classify` has no settings, leave it out")

    reads_files = loaded.tokenizer is None

    def answer(inputs: list[str]) -> list[Classified]:
        return loaded.classify_files(inputs) if reads_files else loaded.classify(*split_pairs(inputs))

    for text, result in each(texts, answer, noun="file" if reads_files else "text"):
        if json:
            label, probabilities = (None, {}) if result is None else (result.label, result.probabilities)
            echo(dumps({"text": text, "label": label, "probabilities": probabilities}))
        else:
            echo("" if result is None else f"{likeliest(result)}\t{text}")
