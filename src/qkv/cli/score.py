"""`qkv score` and `qkv embed`: log-likelihoods and embeddings of texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    MORE_RUNS,
    Column,
    Device,
    EnsembleMode,
    EnsembleWeights,
    JsonLines,
    OutTable,
    Overwrite,
    RunPath,
    Texts,
)
from .say import echo
from .texts import asked, dumps, each, load_run, load_runs, one_line, warn_of_settings

if TYPE_CHECKING:
    from torch import Tensor

    from ..runs.inference.score import TextScore


def score(
    run: RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]... [TEXT]...",
            help=MORE_RUNS
            + "Texts, or for a model trained on pairs `SOURCE<tab>TARGET`; or a file of them (`.csv`, `.tsv`, `.jsonl`, "
            "`.parquet`, `.txt`). Without any, lines of standard input.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="The target of each TEXT, instead of a tab; repeatable. A single TEXT may have several targets.",
        ),
    ] = None,
    out: OutTable = None,
    column: Column = None,
    overwrite: Overwrite = False,
    ensemble_weights: EnsembleWeights = None,
    ensemble_mode: EnsembleMode = None,
    json: JsonLines = False,
    device: Device = "auto",
) -> None:
    """Score texts: the log-likelihood (natural logarithm) of each token and of the text, and its perplexity.

    A blank line gives a blank line.
    """
    loaded, texts = load_runs(run, texts, "score", device, ensemble_weights, ensemble_mode)
    warn_of_settings(texts, "`qkv score` has no settings, leave it out")
    pairs = loaded.task != "continue"
    if target:
        texts = _with_targets(texts, target, pairs)
    log_likelihood, count = 0.0, 0

    def show(text: str, result: TextScore | None) -> None:
        nonlocal log_likelihood, count
        if result is None:
            echo(dumps({"text": text, **BLANK}) if json else "")
            return
        echo(dumps({"text": text, **asdict(result)}) if json else _line(result))
        log_likelihood += result.log_likelihood
        count += len(result.log_probs)

    def columns(result: TextScore) -> dict[str, Any]:
        known = {"log_likelihood": result.log_likelihood, "perplexity": result.perplexity}
        return {**known, "tokens": len(result.log_probs)}

    question = asked(texts, loaded, "score", out, column, overwrite)
    question.answer(lambda chunk: loaded.score(*_sides(chunk, pairs)), show, columns)
    if not json and count:
        from ..core.metrics.text import perplexity

        echo(f"all: {log_likelihood:.4f} over {count} tokens, perplexity {perplexity(-log_likelihood, count):.4f}")


BLANK: dict[str, Any] = {"tokens": [], "log_probs": [], "log_likelihood": None, "perplexity": None}
"""The scores of a blank text."""


def _with_targets(texts: list[str] | None, target: list[str], pairs: bool) -> list[str]:
    """Join each text and its target with a tab."""
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
        raise ValueError(f"{tabbed!r} has a tab, which separates a text from its target; leave out --target or the tab")
    return [f"{text}\t{one}" for text, one in zip(texts, target, strict=True)]


def _sides(lines: list[str], pairs: bool) -> tuple[list[str], list[str] | None]:
    """The texts, and their targets if the model was trained on pairs."""
    if not pairs:
        return lines, None
    from ..runs.tasks.prediction import parts_of

    split = [parts_of(line) for line in lines]
    for line, parts in zip(lines, split, strict=True):
        if len(parts) != 2:
            raise ValueError(f"{line!r} is not SOURCE<tab>TARGET; give both, or the target as --target TEXT")
    return [parts[0] for parts in split], [parts[1] for parts in split]


def _line(score: TextScore) -> str:
    tokens = one_line(
        " ".join(f"{token}:{value:.3f}" for token, value in zip(score.tokens, score.log_probs, strict=True))
    )
    if not tokens:
        return "no tokens to predict"
    return f"{score.log_likelihood:.4f}\tperplexity {score.perplexity:.4f}\t{tokens}"


def embed(
    run: RunPath,
    texts: Texts = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="mean|cls|last|max|weighted-mean|mean-sqrt|none",
            help="How to pool the tokens of a text; `none` gives one vector per token. [default: as sentence-transformers' "
            "files or the head say, or mean]",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale vectors to length 1. [default: as sentence-transformers' files say, or not]",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The prompt in sentence-transformers' files that is prepended to every text, such as `query`. [default: "
            "the one that they name]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an array (`.npy`) of shape (texts, width), or with `none` (all tokens, width); or a table with the "
            "input's columns and an `embedding` (`.csv`, `.tsv`, `.jsonl`, `.parquet`).",
        ),
    ] = None,
    column: Column = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Embed texts: the last layer's hidden states (of an encoder–decoder, the encoder's), pooled or one per token. A dual
    encoder such as CLIP embeds texts and picture files into one space.

    Prints one JSON array per text, or writes a file. With `--pooling none`, an `.npy` file has the tokens of all texts one
    after another, and the number of tokens of each text is printed. A blank text gives `null`, or in a file a row of NaN or
    no token.
    """
    from ..runs.inference.embed import as_pooling
    from ..runs.inference.tables.write import ARRAY, check_output

    pool = None if pooling is None else as_pooling(pooling)
    array = out is not None and out.suffix == ".npy"
    if out is not None:
        check_output(out, (), overwrite, (ARRAY,))
    loaded = load_run(run, "embed", device)
    warn_of_settings(texts, "`qkv embed` has no settings but --pooling, leave it out")
    question = asked(texts, loaded, "embed", None if array else out, column, overwrite and not array)

    def answer(chunk: list[str]) -> Iterable[Tensor]:
        from ..runs.inference.loaded import has_towers
        from ..runs.inference.towers import towers_of

        if has_towers(loaded) and pool is None and prompt is None:
            return towers_of(loaded).vectors(chunk, normalize is not False)
        return loaded.embed(chunk, pool, normalize, prompt)

    if out is None or not array:
        question.answer(
            answer,
            lambda _, vectors: echo(dumps(None if vectors is None else vectors.tolist())),
            lambda vectors: {"embedding": vectors.tolist()},
        )
        return
    embeddings = (vectors for _, vectors in each(question.texts, answer, table=question.table))
    rows = [None if vectors is None else vectors.numpy() for vectors in embeddings]
    _write(out, rows, pooling == "none")
    if pooling == "none":
        echo("\n".join("0" if row is None else str(len(row)) for row in rows))


def _write(out: Path, rows: list[Any], tokens: bool) -> None:
    """Write all vectors as one array, atomically."""
    import io

    import numpy

    from ..core.atomic import write_file

    present = [row for row in rows if row is not None]
    if not present:
        raise ValueError("there are no texts to embed")
    if tokens:
        array = numpy.concatenate(present)
    else:
        array = numpy.stack([numpy.full_like(present[0], numpy.nan) if row is None else row for row in rows])
    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=False)
    write_file(out, file.getvalue())
