"""`qkv tokenizer`: train, inspect, compare and convert tokenizers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .say import console, echo, echo_json

if TYPE_CHECKING:
    from ..data.tokenizers.comparison import TokenizerComparison
    from ..data.tokenizers.explain_split import WordSplit
    from ..data.tokenizers.tokenizer import Tokenizer
    from ..data.tokenizers.training.pair_merges import MergeStep

SHOWN = 12  # tokens in a list

app = typer.Typer(
    no_args_is_help=True, help="Train, inspect, compare and convert tokenizers.", rich_markup_mode="markdown"
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the tokenizer.json in DIR.")]
TokenizerPath = Annotated[
    Path,
    typer.Argument(
        metavar="DIR_OR_FILE",
        help="A run, small-english, a directory in the Hub's format, a tokenizer.json, vocab.txt, vocab.json (with "
        "merges.txt), .model or .tiktoken file.",
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
    """Train a tokenizer on text files and save it; with --trace, saving is optional."""
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

    splitter = Splitter(_load(path))
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
    tokenizer = _load(path)
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


@app.command("compare")
def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text file, plain or .gz, read line by line.")],
    tokenizers: Annotated[
        list[str],
        typer.Argument(
            metavar="TOKENIZER...",
            help="Each a run, a directory in the Hub's format or a tokenizer's file, as for `show`; or a kind, which is "
            "trained on FILE: bpe, wordpiece, unigram, word, char or byte.",
        ),
    ],
    vocab_size: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of tokens of the kinds that are trained.")
    ] = None,
    examples: Annotated[
        int, typer.Option(metavar="N", help="Words to show in each group: shorthand, numbers, long and other words.")
    ] = 4,
    json: Json = False,
) -> None:
    """Compare tokenizers on a text: tokens per word, unknown pieces, and words that they split differently."""
    from ..data.files.lines import lines_of_files
    from ..data.tokenizers.comparison import compare
    from ..data.tokenizers.training.spec import TokenizerSpec

    for name in tokenizers:
        if tokenizers.count(name) > 1:
            raise ValueError(f"{name!r} is given {tokenizers.count(name)} times; give each tokenizer once")
    kinds = [kind for kind in TokenizerSpec.kinds if kind != "file"]
    trained = [name for name in tokenizers if name in kinds]
    if vocab_size is not None and not any("vocab_size" in TokenizerSpec.kinds[kind].model_fields for kind in trained):
        raise ValueError("--vocab-size is for kinds with a vocabulary that is trained, such as bpe; there is none")
    loaded: dict[str, Tokenizer] = {}
    for given, name in _short_names(tokenizers).items():
        loaded[name] = whole = _trained(given, file, vocab_size) if given in trained else _load(Path(given), kinds)
        if whole.sources is not whole:
            loaded[f"{name} (sources)"] = whole.sources
        elif whole.targets is not whole:
            loaded[f"{name} (targets)"] = whole.targets
    result = compare(loaded, lines_of_files([file]), examples)
    if json:
        echo_json({"file": str(file), "trained_on_file": trained, **asdict(result)})
    else:
        _show_comparison(result, trained)


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
    from ..io.directories.layout import claim_output

    tokenizer = _load(path)
    _check_free(out, overwrite)
    claim_output(out / "tokenizer_config.json", overwrite)
    with _folder(out, overwrite) as folder:
        save_for_hub(tokenizer, folder)
    echo(f"{tokenizer.name} written to {out}")


def _load(path: Path, kinds: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer at a path, or of the model that comes with the package; the error also names what a kind may be."""
    from ..data.tokenizers.tokenizer import Tokenizer
    from ..io.directories.locate import SHIPPED, SMALL_ENGLISH

    if str(path) == SMALL_ENGLISH and not path.exists():
        return Tokenizer.load(SHIPPED / SMALL_ENGLISH)
    try:
        return Tokenizer.load(path)
    except ValueError as error:
        if path.exists() or not kinds:
            raise
        raise ValueError(f"{error}; or a kind to train on the file: {', '.join(kinds)}") from None


def _trained(kind: str, file: Path, vocab_size: int | None) -> Tokenizer:
    from ..data.tokenizer_training import train_from_files
    from ..data.tokenizers.training.spec import TokenizerSpec

    if Path(kind).exists():
        echo(f"{kind} is a kind and a path; this is the kind, and ./{kind} is the path", err=True)
    sized = vocab_size is not None and "vocab_size" in TokenizerSpec.kinds[kind].model_fields
    spec = TokenizerSpec.from_dict({"kind": kind, **({"vocab_size": vocab_size} if sized else {})})
    return train_from_files(spec, [file], progress=sys.stderr.isatty())


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


def _show_comparison(result: TokenizerComparison, trained: Sequence[str]) -> None:
    text = result.text
    echo(
        f"{text.lines:,} lines, {text.words:,} words ({text.distinct_words:,} distinct), {text.characters:,} characters, "
        f"{text.bytes:,} bytes"
    )
    if trained:
        echo(f"trained on this file, so on other texts they need more tokens: {', '.join(trained)}")
    figures = list(result.tokenizers.values())
    rows: dict[str, Iterable[str]] = {
        "kind": (each.kind for each in figures),
        "vocabulary": (f"{each.vocab_size:,}" for each in figures),
        "tokens used": (f"{each.used:,}" for each in figures),
        "tokens": (f"{each.tokens:,}" for each in figures),
        "tokens per word": (f"{each.tokens_per_word:.3f}" for each in figures),
        "characters per token": (f"{each.characters_per_token:.3f}" for each in figures),
        "bytes per token": (f"{each.bytes_per_token:.3f}" for each in figures),
        "whole words": (_percent(each.whole_words) for each in figures),
        "coverage": (_percent(each.coverage) for each in figures),
        "unknown pieces": (f"{each.unknown:,}" for each in figures),
        "lines restored": (_percent(each.restored) for each in figures),
    }
    echo()
    _print_table([[what, *cells] for what, cells in rows.items()], ["", *result.tokenizers])
    for name, each in result.tokenizers.items():
        if each.unknown:
            _show_unknown(name, each.unknown_pieces)
    for group, examples in groupby(result.examples, lambda example: example.group):
        echo(f"\n{group}")
        for example in examples:
            echo(f"  {example.word}" + (f" ({example.count:,} times)" if example.count > 1 else ""))
            _print_table([[f"    {name}", f"{len(each)}", " ".join(each)] for name, each in example.pieces.items()])


def _show_unknown(name: str, pieces: Mapping[str, int]) -> None:
    shown = [f"{piece.replace(chr(9), '⇥')} ({count:,})" for piece, count in list(pieces.items())[:SHOWN]]
    more = f" and {len(pieces) - SHOWN:,} more" if len(pieces) > SHOWN else ""
    echo(f"\nunknown to {name}: {'  '.join(shown)}{more}")


def _percent(share: float) -> str:
    """A share in percent, rounded down: 100 % means all."""
    return f"{floor(share * 10_000 + 1e-6) / 100:.2f} %"


def _print_table(rows: Iterable[Sequence[str]], headings: Sequence[str] | None = None) -> None:
    """Print a table; with headings, all columns but the first have numbers, else only the second."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=headings is not None)
    listed = [list(map(Text, row)) for row in rows]
    for column, heading in enumerate(headings or [""] * len(listed[0])):
        number = column > 0 if headings else column == 1
        table.add_column(Text(heading), justify="right" if number else "left", overflow="fold", no_wrap=column == 0)
    for row in listed:
        table.add_row(*row)
    console().print(table)


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """The last part of each path, if these differ, else the whole."""
    last = [Path(name).name or name for name in names]
    return dict(zip(names, last if len(set(last)) == len(names) else names, strict=True))
