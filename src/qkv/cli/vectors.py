"""`qkv vectors`: learn word vectors from text, look at the neighbors of a word, and change the form of a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .say import console, echo

if TYPE_CHECKING:
    from ..data.vectors.word_vectors import Found, Vectors

app = typer.Typer(no_args_is_help=True, help="Learn static word vectors, or look at some.")

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Vectors: word2vec's text or binary form, or GloVe's; or .gz.")
]
Count = Annotated[int, typer.Option(metavar="N", help="How many words to show.", min=1)]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="How the words in FILE are encoded.")]
KeepFirst = Annotated[bool, typer.Option("--keep-first", help="Where a word stands twice, keep its first vector.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("train")
def train(
    texts: Annotated[
        list[Path], typer.Argument(metavar="TEXT...", help="Text files, plain or .gz, a sentence a line.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write; `.bin` is binary, `.gz` compressed.")],
    method: Annotated[str, typer.Option(metavar="skipgram|glove")] = "skipgram",
    width: Annotated[int | None, typer.Option(metavar="N", help="Numbers in a vector. [default: 100]")] = None,
    window: Annotated[
        int | None, typer.Option(metavar="N", help="Words of context on each side. [default: 5; glove 10]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="[default: 5; glove 25]")] = None,
    negatives: Annotated[
        int | None, typer.Option(metavar="N", help="skipgram: noise words a pair. [default: 5]")
    ] = None,
    subsample: Annotated[
        float | None, typer.Option(metavar="T", help="skipgram: thin out words more frequent. [default: 0.001]")
    ] = None,
    x_max: Annotated[
        float | None, typer.Option(metavar="X", help="glove: the count from which pairs weigh alike. [default: 100]")
    ] = None,
    lr: Annotated[float | None, typer.Option(metavar="RATE", help="[default: 0.025; glove 0.05]")] = None,
    min_count: Annotated[int, typer.Option(metavar="N", help="Leave out words that are rarer.", min=1)] = 5,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0)] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Learn word vectors from text, in which words stand between spaces."""
    from ..data.vectors import (  # noqa: F401  (their kinds of method)
        glove,
        skipgram,
    )
    from ..data.vectors.training import Corpus
    from ..data.vectors.training import method as choose
    from ..data.vectors.word2vec_format import write

    given = {"negatives": negatives, "subsample": subsample, "x_max": x_max}
    chosen = choose(method, width=width, window=window, epochs=epochs, lr=lr, **given)
    _free(out, overwrite)
    corpus = Corpus.read(texts, min_count=min_count, lowercase=lowercase)
    began = time.perf_counter()
    with _watched(method) as progress:
        vectors = chosen.train(corpus, seed=seed, progress=progress)
    rate = len(corpus) * chosen.epochs / (time.perf_counter() - began)
    rare = f" ({corpus.dropped:,} running words were rarer than {min_count})" if corpus.dropped else ""
    echo(
        f"{len(vectors):,} words of {vectors.width} numbers from {len(corpus):,} running words{rare}, {rate:,.0f} words/s; "
        f"written to {write(vectors, out)}"
    )


@app.command("nearest")
def nearest(
    file: File,
    word: Annotated[str, typer.Argument(metavar="WORD")],
    count: Count = 10,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
    json: Json = False,
) -> None:
    """Show the words whose vectors point most nearly where WORD's does, with the cosine of the angle between them."""
    _show(_read(file, encoding, keep_first).nearest(word, count), json)


@app.command("analogy")
def analogy(
    file: File,
    words: Annotated[tuple[str, str, str], typer.Argument(metavar="A B C", help="A is to B as C is to …")],
    count: Count = 10,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
    json: Json = False,
) -> None:
    """Show the words nearest to B − A + C, such as `man king woman`."""
    _show(_read(file, encoding, keep_first).analogy(*words, count), json)


@app.command("coverage")
def coverage(
    file: File,
    tokenizer: Annotated[Path, typer.Argument(metavar="DIR_OR_FILE", help="A run or a tokenizer.")],
    texts: Annotated[list[Path] | None, typer.Argument(metavar="[TEXT]...", help="Text files to count over.")] = None,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
) -> None:
    """Show how many of a tokenizer's words have a vector, and how much of some text."""
    from ..data.files.lines import Lines
    from ..recipes.vectors import coverage as covered
    from ..tokenizers.tokenizer import Tokenizer

    opened = [Lines(text) for text in texts or ()]
    lines = (lines[i] for lines in opened for i in range(len(lines)))
    found = covered(Tokenizer.load(tokenizer), _read(file, encoding, keep_first), lines if opened else None)
    echo(f"{found}.")


@app.command("convert")
def convert(
    file: File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="`.bin` is binary, else text; `.gz` compresses.")],
    form: Annotated[str | None, typer.Option(metavar="word2vec|binary|glove", help="[default: by OUT's name]")] = None,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
    overwrite: Overwrite = False,
) -> None:
    """Write vectors in another form, in UTF-8."""
    from ..data.vectors.word2vec_format import as_form, write

    _free(out, overwrite)
    vectors = _read(file, encoding, keep_first)
    place = write(vectors, out, None if form is None else as_form(form))
    echo(f"{len(vectors):,} words of {vectors.width} numbers written to {place}")


def _read(file: Path, encoding: str, keep_first: bool) -> Vectors:
    from ..data.vectors.word2vec_format import read

    vectors = read(file, encoding=encoding, keep_first=keep_first)
    for note in vectors.notes:
        echo(f"{file}: {note}.", err=True)
    return vectors


def _free(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ValueError(f"{out} exists already; replace it with --overwrite, or choose another name")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}; make it first")


def _show(found: Found, json: bool) -> None:
    if json:
        from json import dumps

        echo(dumps(dict(found), indent=2, ensure_ascii=False))
        return
    for word, cosine in found:
        echo(f"{cosine:6.3f}  {word}")


@contextmanager
def _watched(method: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on stderr, where somebody sees it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(method, total=1.0)
        yield lambda share: bar.update(task, completed=share)
