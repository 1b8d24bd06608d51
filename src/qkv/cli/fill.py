"""`qkv fill`: what stands behind the masks of a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from .say import echo
from .texts import Device, Json, RunPath, dumps, each, note_settings, opened


def fill(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts with one mask or several, written as the model's tokenizer has it, such as `[MASK]` or `<mask>`. "
            "Without any, lines of standard input.",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(metavar="N", help="Show the N likeliest tokens for each mask.")] = 5,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Fill in the masks of texts with a masked language model: the likeliest tokens, each with its probability.

    Prints a line for each mask, and behind it the text with the likeliest token in place of each. Each mask is filled by
    itself. A blank line gives a blank line.
    """
    loaded = opened(run, "fill", device)
    note_settings(texts, "`qkv fill` has no settings but --top-k, leave it out")
    for text, found in each(texts, lambda asked: loaded.fill(asked, top_k)):
        if json:
            masks = [] if found is None else [[asdict(one) for one in mask] for mask in found.masks]
            echo(dumps({"text": text, "filled": None if found is None else found.text, "masks": masks}))
        elif found is None:
            echo()
        else:
            for mask in found.masks:
                echo("  ".join(f"{one.token.strip()} {one.probability:.3f}" for one in mask) + f"\t{found.text}")
