"""`qkv score` and `qkv embed`: how likely a model holds texts to be, and the vectors it has for them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .say import echo
from .texts import Device, Json, RunPath, Texts, dumps, each, note_settings, opened

if TYPE_CHECKING:
    from ..inference.score import Score


def score(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts; for a model trained on pairs `SOURCE<tab>TARGET`. Without any, lines of standard input.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="The target of each TEXT in turn, instead of a tab; one TEXT may have many."),
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Score given outputs: the log-likelihood of each token and of the whole (natural logarithm), and perplexity.

    A blank line gives a blank line.
    """
    loaded = opened(run, "score", device)
    note_settings(texts, "`qkv score` has no settings, leave it out")
    pairs = loaded.task != "continue"
    if target:
        texts = _beside(texts, target, pairs)
    totals = [0.0, 0.0]
    for text, result in each(texts, lambda asked: loaded.score(*_sides(asked, pairs))):
        if result is None:
            echo(dumps({**NOTHING, "text": text}) if json else "")
            continue
        echo(dumps({"text": text, **asdict(result)}) if json else _line(result))
        totals = [totals[0] + result.log_likelihood, totals[1] + len(result.log_probs)]
    if not json and totals[1]:
        echo(f"all: {totals[0]:.4f} over {totals[1]:.0f} tokens, perplexity {perplexity(*totals):.4f}")


NOTHING: dict[str, Any] = {
    "text": "",
    "tokens": [],
    "log_probs": [],
    "log_likelihood": None,
    "perplexity": None,
}  # of a blank text


def _beside(texts: list[str] | None, target: list[str], pairs: bool) -> list[str]:
    """Each text with its target behind a tab."""
    if not pairs:
        raise ValueError(
            "--target is for models trained on pairs; this run is a language model and scores the TEXT itself"
        )
    texts = texts or []
    texts = texts * len(target) if len(texts) == 1 else texts
    if len(texts) != len(target):
        raise ValueError(f"there are {len(texts)} texts and {len(target)} targets; give one target for each text")
    tabbed = next((text for text in [*texts, *target] if "\t" in text), None)
    if tabbed is not None:
        raise ValueError(f"{tabbed!r} has a tab, which parts a text from its target; leave out --target, or the tab")
    return [f"{text}\t{one}" for text, one in zip(texts, target, strict=True)]


def _sides(lines: list[str], pairs: bool) -> tuple[list[str], list[str] | None]:
    """Texts, and their targets where a model was trained on pairs."""
    if not pairs:
        return lines, None
    split = [line.split("\t") for line in lines]
    for line, parts in zip(lines, split, strict=True):
        if len(parts) != 2:
            raise ValueError(f"{line!r} is not SOURCE<tab>TARGET; give both, or the target as --target TEXT")
    return [parts[0] for parts in split], [parts[1] for parts in split]


def perplexity(total: float, count: float) -> float:
    from ..metrics.text import perplexity as of_tokens

    return of_tokens(-total, int(count))


def _line(score: Score) -> str:
    tokens = " ".join(f"{token}:{value:.3f}" for token, value in zip(score.tokens, score.log_probs, strict=True))
    if not tokens:
        return "no token that is predicted from another"
    return f"{score.log_likelihood:.4f}\tperplexity {score.perplexity:.4f}\t{tokens}"


def embed(
    run: RunPath,
    texts: Texts = None,
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
    in the file, and the number of tokens of each text is printed. A blank text gives `null`, in a file a row of NaN, or no
    token.
    """
    from ..inference.embed import as_pooling

    chosen = None if pooling is None else as_pooling(pooling)
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"--out {out} is to end in .npy; without --out the vectors are printed as JSON")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} for {out.name}; make it first")
    loaded = opened(run, "embed", device)
    note_settings(texts, "`qkv embed` has no settings but --pooling, leave it out")
    made = (vectors for _, vectors in each(texts, lambda asked: loaded.embed(asked, chosen)))
    if out is None:
        for vectors in made:
            echo(dumps(None if vectors is None else vectors.tolist()))
        return
    rows = [None if vectors is None else vectors.numpy() for vectors in made]
    _write(out, rows, pooling == "none")
    if pooling == "none":
        echo("\n".join("0" if row is None else str(len(row)) for row in rows))


def _write(out: Path, rows: list[Any], tokens: bool) -> None:
    """One array of all vectors, written whole or not at all."""
    import io

    import numpy

    from ..core.atomic import write_file

    there = [row for row in rows if row is not None]
    if not there:
        raise ValueError("there are no texts to embed")
    missing = numpy.full_like(there[0], numpy.nan)
    made = there if tokens else [missing if row is None else row for row in rows]
    file = io.BytesIO()
    numpy.save(file, numpy.concatenate(made) if tokens else numpy.stack(made), allow_pickle=False)
    write_file(out, file.getvalue())
