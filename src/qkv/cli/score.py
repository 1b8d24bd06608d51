"""`qkv score` and `qkv embed`: how likely a model holds texts to be, and the vectors it has for them."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .texts import Device, Json, read

if TYPE_CHECKING:
    from ..run.score import Score

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def score(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts; for an encoder–decoder `SOURCE<tab>TARGET`. Without any, lines of standard input.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="The target of each TEXT in turn, instead of a tab; one TEXT may have many."),
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Score given outputs: the log-likelihood of each token and of the whole (natural logarithm), and perplexity."""
    from ..run.load import load

    loaded = load(run, device=device)
    totals = [0.0, 0.0]
    for chunk in read(texts):
        sources, targets = _sides(chunk, target, loaded.model.is_encoder_decoder)
        for result in loaded.score(sources, targets):
            typer.echo(dumps(asdict(result), ensure_ascii=False) if json else _line(result))
            totals = [totals[0] + result.log_likelihood, totals[1] + len(result.log_probs)]
    if not json and totals[1]:
        from math import exp

        typer.echo(f"all: {totals[0]:.4f} over {totals[1]:.0f} tokens, perplexity {exp(-totals[0] / totals[1]):.4f}")


def _sides(lines: list[str], target: list[str] | None, pairs: bool) -> tuple[list[str], list[str] | None]:
    """Texts, and for an encoder–decoder their targets, from lines with a tab or from `--target`."""
    if not pairs:
        if target:
            raise ValueError(
                "--target is for encoder–decoders; this run is a language model and scores the TEXT itself"
            )
        return lines, None
    if target:
        lines = lines * len(target) if len(lines) == 1 else lines
        if len(lines) != len(target):
            raise ValueError(f"there are {len(lines)} texts and {len(target)} targets; give one target for each text")
        return lines, target
    split = [line.split("\t") for line in lines]
    for line, parts in zip(lines, split, strict=True):
        if len(parts) != 2:
            raise ValueError(f"{line!r} is not SOURCE<tab>TARGET; give both, or the target as --target TEXT")
    return [parts[0] for parts in split], [parts[1] for parts in split]


def _line(score: Score) -> str:
    tokens = " ".join(f"{token}:{value:.3f}" for token, value in zip(score.tokens, score.log_probs, strict=True))
    return f"{score.log_likelihood:.4f}\tperplexity {score.perplexity:.4f}\t{tokens}"


def embed(
    run: RunPath,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; without any, lines of standard input.")
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="mean|cls|last|max|none",
            help="One vector a text, or with `none` one a token; by default what sentence-transformers' files say, "
            "else the mean.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy", help="Write an array: (texts, d_model), or with `none` (all tokens, d_model)."
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Embed texts: hidden states of the last layer (an encoder–decoder's encoder), pooled or one a token.

    Prints one JSON array a text, or writes an `.npy` file. With `--pooling none` the tokens of all texts follow one another
    in the file, and the number of tokens of each text is printed.
    """
    from ..run.embed import as_pooling
    from ..run.load import load

    chosen = None if pooling is None else as_pooling(pooling)
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"--out {out} is to end in .npy; without --out the vectors are printed as JSON")
    loaded = load(run, device=device)
    made = (vectors for chunk in read(texts) for vectors in loaded.embed(chunk, chosen))
    if out is None:
        for vectors in made:
            typer.echo(dumps(vectors.tolist()))
        return
    import numpy

    rows = [vectors.numpy() for vectors in made]
    if not rows:
        raise ValueError("there are no texts to embed")
    with out.open("wb") as file:
        numpy.save(file, numpy.concatenate(rows) if pooling == "none" else numpy.stack(rows), allow_pickle=False)
    if pooling == "none":
        typer.echo("\n".join(str(len(row)) for row in rows))
