"""`qkv fill`: predict the masked tokens of a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import MORE_RUNS, Column, Device, EnsembleMode, EnsembleWeights, JsonLines, OutTable, Overwrite, RunPath
from .say import echo
from .texts import asked, dumps, load_runs, one_line, warn_of_settings

if TYPE_CHECKING:
    from ..runs.inference.fill import Filled


def fill(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]... [TEXT]...",
            help=MORE_RUNS
            + "Texts with masks, written as in the model's tokenizer, such as `[MASK]` or `<mask>`. Without any, lines "
            "of standard input.",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(metavar="N", help="Show the N most probable tokens for each mask.")] = 5,
    out: OutTable = None,
    column: Column = None,
    overwrite: Overwrite = False,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Fill in the masks of texts with a masked language model: the most probable tokens with their probabilities.

    Prints a line for each mask, followed by the text with the most probable token in place of every mask. Each mask is
    filled independently of the others. A blank line gives a blank line.
    """
    loaded, texts = load_runs(run, texts, "fill", device, ensemble_weights, ensemble_mode)
    warn_of_settings(texts, "`qkv fill` has no settings but --top-k, leave it out")

    def show(text: str, result: Filled | None) -> None:
        if json:
            masks = [] if result is None else [[asdict(token) for token in mask] for mask in result.masks]
            echo(dumps({"text": text, "filled": None if result is None else result.text, "masks": masks}))
        elif result is None:
            echo()
        else:
            for mask in result.masks:
                echo(
                    "  ".join(f"{one.token.strip()} {one.probability:.3f}" for one in mask)
                    + f"\t{one_line(result.text)}"
                )

    def columns(result: Filled) -> dict[str, Any]:
        return {"filled": result.text, "masks": [[asdict(token) for token in mask] for mask in result.masks]}

    asked(texts, loaded, "fill", out, column, overwrite).answer(lambda chunk: loaded.fill(chunk, top_k), show, columns)
