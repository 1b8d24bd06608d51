"""`qkv tokenizer`: train, inspect and convert tokenizers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .say import console, echo, echo_json

if TYPE_CHECKING:
    from ..data.tokenizers.explain_split import WordSplit
    from ..data.tokenizers.tokenizer import Tokenizer
    from ..data.tokenizers.training.pair_merges import MergeStep

SHOWN = 12  # tokens in a list

app = typer.Typer(no_args_is_help=True, help="Train, inspect and convert tokenizers.", rich_markup_mode="markdown")

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the tokenizer.json in DIR.")]
TokenizerPath = Annotated[
    Path,
    typer.Argument(
        metavar="DIR_OR_FILE",
        help="A run, a directory in the Hub's format, a tokenizer.json, vocab.txt, vocab.json (with merges.txt), .model or "
        ".tiktoken file.",
    ),
]


@app.command("train")
def train(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Text files, plain or .gz, read line by line.")
    ],
    kind: Annotated[
        str, typer.Option(metavar="bpe|wordpiece|unigram|word|char|byte", help="The kind of tokenizer.")
    ] = "bpe",
    vocab_size: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of tokens, including special tokens.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write tokenizer.json.")] = None,
    special: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="A marker that is one token, such as `<de>`; repeatable.")
    ] = None,
    min_frequency: Annotated[
        int | None, typer.Option(metavar="N", help="Ignore pairs or words that are rarer than N.")
    ] = None,
    byte_level: Annotated[
        bool | None, typer.Option("--byte-level/--no-byte-level", help="BPE over bytes (lossless) or characters.")
    ] = None,
    byte_fallback: Annotated[
        bool | None, typer.Option("--byte-fallback", help="Encode unknown characters as bytes (bpe, unigram, char).")
    ] = None,
    prefix_space: Annotated[
        bool | None,
        typer.Option("--prefix-space/--no-prefix-space", help="Add a space before the first word of a text."),
    ] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Lowercase the text.")] = None,
    normalization: Annotated[
        str | None, typer.Option(metavar="none|nfc|nfkc", help="Unicode normalization of the text.")
    ] = None,
    mask: Annotated[bool, typer.Option("--mask", help="Add the token `<mask>`.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the merges in the order of training.")] = False,
    dropout: Annotated[
        float | None,
        typer.Option(metavar="P", help="Split words at random when a model is trained (bpe, unigram)."),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Train a tokenizer on text files and save it (optional with --trace)."""
    from ..data.tokenizer_training import train_from_files
    from ..data.tokenizers.training.spec import TokenizerSpec

    if out is None and not trace:
        raise ValueError("give the directory for the tokenizer with --out DIR, or show the merges with --trace")
    _check_free(out, overwrite, files)
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special": tuple(special) if special else None,
        "min_frequency": min_frequency,
        "byte_level": byte_level,
        "byte_fallback": byte_fallback,
        "prefix_space": prefix_space,
        "lowercase": lowercase,
        "normalization": normalization,
        "mask": "<mask>" if mask else None,
        "dropout": dropout,
    }
    fields = {name: value for name, value in settings.items() if value is not None}
    spec = TokenizerSpec.from_dict({"kind": kind, **fields})
    steps: list[MergeStep] = []
    tokenizer = train_from_files(spec, files, progress=sys.stderr.isatty(), trace=steps.append if trace else None)
    path = None if out is None else _save(tokenizer, out, overwrite)
    size = tokenizer.vocab_size
    limit = getattr(spec, "vocab_size", size)
    if json:
        summary = {"path": path and str(path), "kind": kind, "vocab_size": size, "at_most": limit}
        echo_json({**summary, **({"trace": list(map(asdict, steps))} if trace else {})})
        return
    if trace:
        _show_trace(steps, scored=kind == "wordpiece")
    fewer = f", fewer than the limit of {limit:,}: the text yields no more" if size < limit else ""
    echo(f"{size:,} tokens{fewer}" + (f"; written to {path}" if path else "; not saved"))


@app.command("show")
def show(
    path: TokenizerPath,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="The words to split.")],
    json: Json = False,
) -> None:
    """Show how words are split, step by step.

    BPE: the merges in order. WordPiece: the longest piece at each position, and the longer ones tried before it. Unigram:
    the most probable segmentation and the runners-up, with log-probabilities.
    """
    from ..data.tokenizers.explain_split import Splitter
    from ..data.tokenizers.tokenizer import Tokenizer

    splitter = Splitter(Tokenizer.load(path))
    splits = {word: splitter.split(word) for word in words}
    if json:
        echo_json({word: [asdict(part) for part in parts] for word, parts in splits.items()})
        return
    for word, parts in splits.items():
        echo(word)
        for part in parts:
            _show_split(part)


@app.command("info")
def info(path: TokenizerPath, json: Json = False) -> None:
    """Show a tokenizer's kind, its size, and the ids of its special tokens."""
    from ..data.tokenizers.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(path)
    roles = {role: {"token": name, "id": tokenizer.id(name)} for role, name in tokenizer.roles.items()}
    named = set(tokenizer.roles.values())
    others = [name for name in tokenizer.controls if name not in named]
    summary = {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "roles": roles, "control": others}
    summary |= {"markers": list(tokenizer.markers), "dropout": tokenizer.dropout}
    sources = None if tokenizer.sources is tokenizer else tokenizer.sources
    summary |= {} if sources is None else {"sources": {"kind": sources.kind, "vocab_size": sources.vocab_size}}
    if json:
        echo_json(summary)
        return
    echo(f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens")
    for role, token in roles.items():
        echo(f"  {role:<5} {token['token']} ({token['id']})")
    for what, names in (("other control tokens", others), ("markers", tokenizer.markers)):
        if names:
            more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
            echo(f"  {what}: {' '.join(names[:SHOWN])}{more}")
    if sources is not None:
        echo(f"  separate tokenizer for sources: {sources.kind}, {sources.vocab_size:,} tokens")
    if tokenizer.dropout:
        echo(f"  dropout {tokenizer.dropout:g} in training")


@app.command("convert")
def convert(
    path: TokenizerPath,
    out: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write tokenizer.json and tokenizer_config.json.")
    ],
    overwrite: Overwrite = False,
) -> None:
    """Convert a tokenizer to tokenizer.json, with the tokenizer_config.json that transformers needs."""
    from ..data.tokenizers.hub_export import save_for_hub
    from ..data.tokenizers.tokenizer import Tokenizer
    from ..io.directories.layout import claim_output

    tokenizer = Tokenizer.load(path)
    _check_free(out, overwrite)
    claim_output(out / "tokenizer_config.json", overwrite)
    with _folder(out, overwrite) as folder:
        save_for_hub(tokenizer, folder)
    echo(f"{tokenizer.name} written to {out}")


def _save(tokenizer: Tokenizer, out: Path, overwrite: bool) -> Path:
    from ..data.tokenizers.tokenizer_json import place

    if place(out) == out:
        return tokenizer.save(out)
    with _folder(out, overwrite) as folder:
        tokenizer.save(folder)
    return place(out)


@contextmanager
def _folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Where to write the files of a tokenizer: a folder that replaces `out`, or `out` if it has other files too."""
    from ..core.atomic import check_replaceable, replacing_folder
    from ..io.directories.layout import TOKENIZER_FILES

    def check(folder: Path) -> None:
        if TOKENIZER_FILES.check(folder) and not overwrite:
            raise ValueError(f"{folder} already exists; replace it with --overwrite, or choose another name")

    try:
        check_replaceable(out, TOKENIZER_FILES.check)
        whole = True
    except ValueError:
        whole = False
    if not whole:
        yield out
        return
    with replacing_folder(out, check) as folder:
        yield folder


def _check_free(out: Path | None, overwrite: bool, files: Sequence[Path] = ()) -> None:
    from ..data.tokenizers.tokenizer_json import place
    from ..io.directories.layout import claim_output

    if out is not None:
        claim_output(place(out), overwrite, files)


def _show_split(split: WordSplit) -> None:
    echo(f"  {' '.join(split.start)}")
    for step in split.steps:
        echo(f"  {step}")
    pieces = "  ".join(f"{piece} ({i})" for piece, i in zip(split.pieces, split.ids, strict=True))
    echo(f"  = {pieces}\n")


def _show_trace(steps: Sequence[MergeStep], scored: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("merge", "pair", "token", "count", *(["score"] if scored else []), "symbols left"):
        table.add_column(heading, justify="left" if heading in ("pair", "token") else "right", no_wrap=True)
    table.add_column("corpus", overflow="fold")
    for number, step in enumerate(steps, 1):
        score = [f"{step.score:.6f}"] if scored else []
        counts = [f"{step.count:,}", *score, f"{step.symbols:,}"]
        corpus = " | ".join(map(" ".join, step.words))
        cells = [str(number), f"{step.left} + {step.right}", step.token, *counts, corpus]
        table.add_row(*map(Text, cells))
    console().print(table)
