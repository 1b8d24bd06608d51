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
            help="Texts, pairs of texts as `TEXT<tab>TEXT`, or, for a model of pictures or sounds, their files. "
            "Without any, lines of standard input.",
        ),
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Tell what class each text, picture or sound is of: the likeliest first, each class with its probability."""
    from ..run.load import load

    loaded = load(run, device=device)
    for chunk in read(texts):
        made = loaded.classify(*_sides(chunk)) if loaded.tokenizer is not None else loaded.classify_files(chunk)
        for text, found in zip(chunk, made, strict=True):
            if json:
                typer.echo(
                    dumps(
                        {"text": text, "label": found.label, "probabilities": found.probabilities}, ensure_ascii=False
                    )
                )
            else:
                shares = "  ".join(f"{name} {share:.3f}" for name, share in list(found.probabilities.items())[:5])
                typer.echo(f"{shares}\t{text}")


def _sides(lines: list[str]) -> tuple[list[str], list[str] | None]:
    """Texts, and what stands beside each where it is a pair."""
    split = [line.split("\t") for line in lines]
    widths = {len(parts) for parts in split}
    if widths == {1}:
        return lines, None
    if widths != {2}:
        raise ValueError("give texts, or TEXT<tab>TEXT for every one of them")
    return [parts[0] for parts in split], [parts[1] for parts in split]
