"""`qkv look`: a page that shows the attention of a trained model on texts, pictures or sounds."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .files_beside import FilesBeside
from .options import Device, ImageFiles, Overwrite, SoundFiles, VideoFiles
from .say import echo
from .texts import dumps, note_files, small_english, warn_of_settings

if TYPE_CHECKING:
    from ..look.view.figure import Figure
    from ..runs.inference.look.live import HeadChange
    from ..runs.inference.run import Run

_SCORE = re.compile(r"(?:([a-z][a-z ]*)\.)?(\d+)\.(\d+)\.(\d+)\.(\d+)")


def look(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run directory, a directory in the Hub's format, or a name on the Hub. [default: small-english, which "
            "comes with qkv, if the first argument is a text of several words]",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Texts, or pictures, videos or sounds if the run reads such files. Without any, lines of standard input.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write: `.html` is a page, `.json` has exact weights, `.svg`, `.png` and `.pdf` are a picture. "
            "[default: look.html, which replaces an earlier page of qkv]",
        ),
    ] = None,
    overwrite: Overwrite = False,
    word: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Draw only the dependencies of this word at first; a picture has a color for each head.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="An encoder–decoder's output. [default: what it generates]"),
    ] = None,
    generate: Annotated[
        int, typer.Option(metavar="N", min=0, help="Continue the text by N tokens first (language models).")
    ] = 0,
    tokens: Annotated[
        str | None, typer.Option(metavar="START:STOP", help="Tokens to draw. [default: the first 64]")
    ] = None,
    layers: Annotated[str | None, typer.Option(metavar="0,5", help="Layers to draw, from 0. [default: all]")] = None,
    heads: Annotated[str | None, typer.Option(metavar="0,3", help="Heads to draw, from 0. [default: all]")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="The attention that a picture shows and a page opens with: `encoder`, `decoder` or `cross`, or a "
            "medium, `image`, `sound 2` or `video`. [default: the first]",
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="[KIND.]LAYER.HEAD.QUERY.KEY",
            help="Print one score in steps instead of writing a file, such as `5.3.10.4` or `cross.0.1.2.7`.",
        ),
    ] = None,
    off: Annotated[
        str | None,
        typer.Option(
            metavar="[KIND.]LAYER.HEAD,…",
            help="Switch heads off, such as `0.3,5.1`, and show the prediction with and without them.",
        ),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A text with the same number of tokens: show which layers and tokens carry the difference between the "
            "two texts.",
        ),
    ] = None,
    neuron: Annotated[
        str | None,
        typer.Option(
            metavar="[KIND.]LAYER.INDEX",
            help="Show the texts with the largest activation of a feed-forward neuron, such as `1.17`; without INPUT, "
            "show only these.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Texts for --neuron, one a line. [default: the validation split of the run's data]"
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare --word between the texts: how its vector moves by layer, and which words move it. Without --word, "
            "the longest word that all texts have.",
        ),
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve a live page on this machine: other texts, heads switched off or scaled."),
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of --serve. [default: a free one]")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print exact weights, or the score, as JSON.")] = False,
    image: ImageFiles = None,
    sound: SoundFiles = None,
    video: VideoFiles = None,
    device: Device = "auto",
) -> None:
    """Show what each layer and head of a trained model attends to, as one page that opens offline.

    Encoder–decoders show source and output, classifiers the predicted class, language models the likeliest next tokens.
    Layers, heads and tokens count from 0.
    """
    from ..io.directories.layout import claim_page, is_own_page
    from ..look.view.figure import check_suffix
    from ..runs.inference.loaded import has_towers
    from ..runs.inference.look.live import changed_look
    from ..runs.inference.run import load
    from ..runs.inference.uses import reads_text

    _check_together(serve, out, json, score, port, compare)
    if json and kind is not None and score is None:
        raise ValueError("--json prints all kinds of attention, so --kind has no effect; leave it out")
    chosen: dict[str, Any] = {
        "tokens": _range(tokens),
        "layers": _indices("layers", layers),
        "heads": _indices("heads", heads),
    }
    pair = None if score is None else _pair(score)
    path = check_suffix(out or "look.html")
    writes = not (serve or json or pair)
    replaced = writes and path.is_file()
    claim_page(path if writes else None, overwrite or (writes and out is None and is_own_page(path)))
    run, inputs = _named(run, inputs)
    loaded = load(run, device=device)
    warn_of_settings(inputs, "`qkv look` uses the run's settings, leave it out")
    chosen |= {"target": target, "generate": generate, "word": word}
    chosen |= {"kind": kind, "neuron": neuron, "texts": _texts(texts, neuron), "patch": patch}
    chosen |= {"compare": compare}
    note_files(inputs or () if reads_text(loaded) and not has_towers(loaded) else (), "; look takes texts")
    files = FilesBeside(loaded, image, sound, video)
    items = list(files.beside(inputs or [""]) or ()) if files else inputs or []
    items = items or ([] if neuron is not None and not serve else _lines(loaded))
    changes = _switched_off(loaded, off)
    if serve:
        _serve(loaded, items, changes, port, chosen)
        return
    figure = changed_look(loaded, items, changes, **chosen)
    if pair is not None:
        breakdown = figure.score(*pair[1:], group=pair[0] or kind)
        echo(dumps(breakdown.to_json()) if json else str(breakdown))
    elif json:
        echo(dumps(figure.to_json()))
    else:
        figure.save(path)
        _tell(figure, path, replaced)


def _named(run: str | None, inputs: list[str] | None) -> tuple[str, list[str] | None]:
    """The run and its inputs: of small-english if no run is named, because the first argument is a text."""
    if run is None:
        return small_english(), inputs
    folder = run.replace("\\", "/").partition("/")[0]
    words = len(run.split()) > 1 and not os.path.exists(run)  # noqa: PTH110  (a text may be too long for a path)
    if not words or folder in ("", ".", "..", "~", "runs"):
        return run, inputs
    return small_english(), [run, *(inputs or [])]


def _check_together(serve: bool, out: Path | None, json: bool, score: str | None, port: int, compare: bool) -> None:
    """Raise ValueError for options of which only one could have an effect."""
    prints = "--json" if json else "--score"
    if serve and (out is not None or json or score is not None):
        raise ValueError(f"--serve shows a live page; leave out {prints if json or score is not None else '--out'}")
    if out is not None and (json or score is not None):
        raise ValueError(f"--out writes a file and {prints} prints; give one of them")
    if compare and (serve or score is not None):
        raise ValueError(f"--compare is for a page of several texts; leave out {'--serve' if serve else '--score'}")
    if port and not serve:
        raise ValueError("--port is an option of the live page; give --serve as well")


def _tell(figure: Figure, path: Path, replaced: bool) -> None:
    """Print the predictions, what is not drawn, and where the page is."""
    for view in figure.views:
        for name, value in view.facts:
            echo(f"{name}: {value or '(empty)'}")
        for note in view.notes:
            echo(f"{note}.")
    echo(f"written to {path}{', in place of the file that was there' if replaced else ''}")


def _serve(run: Run, inputs: list[str], changes: list[HeadChange], port: int, options: dict[str, Any]) -> None:
    """Serve the live page until Ctrl-C. Raises ValueError for a port that is taken."""
    from ..runs.inference.look.live import live_server

    try:
        made = live_server(run, inputs, port, changes, **options)
    except OSError as error:
        raise ValueError(f"port {port} can't be used ({error.strerror}); leave --port out for a free one") from None
    with made as server:
        echo(f"the page is at {server.address} for this machine alone; Ctrl-C ends it", err=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _switched_off(run: Run, text: str | None) -> list[HeadChange]:
    """The heads of `--off`, in the encoder unless named otherwise, or in the decoder if there is no encoder."""
    from ..runs.inference.look.live import HeadChange

    stack = "decoder" if getattr(run.model.spec, "encoder", None) is None else "encoder"
    heads = []
    for part in text.split(",") if text is not None else ():
        match = re.fullmatch(r"(?:(encoder|decoder|cross)\.)?(\d+)\.(\d+)", part.strip())
        if match is None:
            raise ValueError(f"--off is a list of LAYER.HEAD, such as 0.3,5.1 or cross.0.3, not {text!r}")
        heads.append(HeadChange(match[1] or stack, int(match[2]), int(match[3]), 0.0))
    return heads


def _texts(path: Path | None, neuron: str | None) -> list[str] | None:
    """The lines of a file of texts for a neuron."""
    if path is None:
        return None
    if neuron is None:
        raise ValueError("--texts is for --neuron; name a neuron, such as --neuron 1.17")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"there is no file {path} for --texts; give a file with one text a line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} can't be read as UTF-8 text: {error}") from None


def _lines(run: Run) -> list[str]:
    """The lines of standard input that are not blank. Raises ValueError if it is a terminal or has none."""
    lines = [] if sys.stdin is None or sys.stdin.isatty() else [line.rstrip("\r\n") for line in sys.stdin]
    texts = [line for line in lines if line.strip()]
    if not texts:
        from ..runs.inference.uses import reads_text

        what, example = ("text", '"a text"') if reads_text(run) else ("file", "picture.png")
        raise ValueError(f"there is no {what} to look at; give one, such as qkv look {run.name} {example}")
    return texts


def _range(text: str | None) -> tuple[int, int] | None:
    """START:STOP as two numbers."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"--tokens is START:STOP with START below STOP, such as 10:80, not {text!r}")
    return int(match[1]), int(match[2])


def _indices(name: str, text: str | None) -> list[int] | None:
    """Comma-separated indices."""
    if text is None:
        return None
    if not re.fullmatch(r"\d+(,\d+)*", text.replace(" ", "")):
        raise ValueError(f"--{name} is a list of numbers from 0, such as 0,5, not {text!r}")
    return [int(part) for part in text.split(",")]


def _pair(text: str) -> tuple[Any, int, int, int, int]:
    """(group, layer, head, query, key) of a score; the group is None unless named."""
    match = _SCORE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"--score is LAYER.HEAD.QUERY.KEY, such as 5.3.10.4, or cross.5.3.10.4, not {text!r}")
    layer, head, query, key = (int(part) for part in match.groups()[1:])
    return match[1], layer, head, query, key
