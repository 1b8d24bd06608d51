"""`qkv vectors`: train, inspect and convert static word vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json
from .say import echo, echo_json, progress_bar

if TYPE_CHECKING:
    from ..data.vectors.word_vectors import Found, Vectors

app = typer.Typer(
    no_args_is_help=True, help="Train, inspect and convert static word vectors.", rich_markup_mode="markdown"
)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Vectors in word2vec's text or binary format or GloVe's, plain or .gz.")
]
Count = Annotated[int, typer.Option(metavar="N", help="Number of words to show.", min=1)]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="The encoding of the words in FILE.")]
KeepFirst = Annotated[bool, typer.Option("--keep-first", help="Use the first vector of a word that occurs twice.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file.")]


@app.command("train")
def train(
    texts: Annotated[
        list[Path], typer.Argument(metavar="TEXT...", help="Text files, plain or .gz, one sentence per line.")
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file to write: binary if it ends in `.bin`, compressed with `.gz`."),
    ],
    method: Annotated[str, typer.Option(metavar="skipgram|glove", help="The training method.")] = "skipgram",
    width: Annotated[int | None, typer.Option(metavar="N", help="Width of the vectors. [default: 100]")] = None,
    window: Annotated[
        int | None, typer.Option(metavar="N", help="Words of context on each side. [default: 5; glove 10]")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="Passes over the text. [default: 5; glove 25]")
    ] = None,
    negatives: Annotated[
        int | None, typer.Option(metavar="N", help="skipgram: noise words per pair. [default: 5]")
    ] = None,
    subsample: Annotated[
        float | None,
        typer.Option(
            metavar="T", help="skipgram: drop some occurrences of words more frequent than T. [default: 0.001]"
        ),
    ] = None,
    x_max: Annotated[
        float | None,
        typer.Option(metavar="X", help="glove: the count above which all pairs weigh the same. [default: 100]"),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(metavar="RATE", help="Learning rate. [default: 0.025; glove 0.05]")
    ] = None,
    min_count: Annotated[int, typer.Option(metavar="N", help="Ignore words that occur fewer than N times.", min=1)] = 5,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of training.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Train word vectors on text whose words are separated by spaces."""
    from ..data.vectors import glove, skipgram  # noqa: F401  (register the methods)
    from ..data.vectors.training import VectorCorpus
    from ..data.vectors.training import method as choose
    from ..data.vectors.word2vec_format import write

    options = {"negatives": negatives, "subsample": subsample, "x_max": x_max}
    trainer = choose(method, width=width, window=window, epochs=epochs, lr=lr, **options)
    _check_target(out, overwrite, texts)
    corpus = VectorCorpus.read(texts, min_count=min_count, lowercase=lowercase)
    began = time.perf_counter()
    with progress_bar(method) as progress:
        vectors = trainer.train(corpus, seed=seed, progress=progress)
    rate = len(corpus) * trainer.epochs / (time.perf_counter() - began)
    rare = f" ({corpus.dropped:,} running words were rarer than {min_count})" if corpus.dropped else ""
    echo(
        f"{len(vectors):,} vectors of width {vectors.width} from {len(corpus):,} running words{rare}, "
        f"{rate:,.0f} words/s; written to {write(vectors, out)}"
    )


@app.command("nearest")
def nearest(
    file: File,
    word: Annotated[str, typer.Argument(metavar="WORD", help="The word.")],
    count: Count = 10,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
    json: Json = False,
) -> None:
    """Show the words nearest to WORD, with the cosine similarity of their vectors."""
    _show(_read(file, encoding, keep_first).nearest(word, count), json)


@app.command("analogy")
def analogy(
    file: File,
    words: Annotated[tuple[str, str, str], typer.Argument(metavar="A B C", help="Three words: A is to B as C is to …")],
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
    tokenizer: Annotated[
        Path, typer.Argument(metavar="DIR_OR_FILE", help="A run, or a tokenizer's directory or file.")
    ],
    texts: Annotated[
        list[Path] | None, typer.Argument(metavar="[TEXT]...", help="Text files whose tokens to count.")
    ] = None,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
) -> None:
    """Show how many of a tokenizer's words, and of the tokens of texts, have a vector."""
    from ..data.files.lines import Lines
    from ..data.tokenizers.tokenizer import Tokenizer
    from ..runs.recipes.vectors import coverage as covered

    files = [Lines(text) for text in texts or ()]
    lines = (file[i] for file in files for i in range(len(file)))
    result = covered(Tokenizer.load(tokenizer), _read(file, encoding, keep_first), lines if files else None)
    echo(f"{result}.")


@app.command("convert")
def convert(
    file: File,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write: binary if it ends in `.bin`, else text; compressed with `.gz`."
        ),
    ],
    form: Annotated[
        str | None, typer.Option(metavar="word2vec|binary|glove", help="The format. [default: by the name of OUT]")
    ] = None,
    encoding: Encoding = "utf-8",
    keep_first: KeepFirst = False,
    overwrite: Overwrite = False,
) -> None:
    """Convert vectors to another format, in UTF-8."""
    from ..data.vectors.word2vec_format import as_form, write

    _check_target(out, overwrite, [file])
    vectors = _read(file, encoding, keep_first)
    path = write(vectors, out, None if form is None else as_form(form))
    echo(f"{len(vectors):,} vectors of width {vectors.width} written to {path}")


def _read(file: Path, encoding: str, keep_first: bool) -> Vectors:
    from ..data.vectors.word2vec_format import read

    vectors = read(file, encoding=encoding, keep_first=keep_first)
    for note in vectors.notes:
        echo(f"{file}: {note}.", err=True)
    return vectors


def _check_target(out: Path, overwrite: bool, inputs: list[Path]) -> None:
    from ..io.directories.layout import claim_output

    claim_output(out, overwrite, inputs)
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}; create it first")


def _show(neighbors: Found, json: bool) -> None:
    if json:
        echo_json(dict(neighbors))
        return
    for word, cosine in neighbors:
        echo(f"{cosine:6.3f}  {word}")
