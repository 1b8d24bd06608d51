"""Texts from the command line or from standard input, for the commands that use a run.

One rule for blank texts, which say nothing: nobody is asked about them, and each is answered by a blank line, in JSON by an
object whose answer is null or empty. A line of standard input that can't be answered, such as one that is longer than the
model's context, has the same and a warning. So lines that go in and lines that come out belong together.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .say import echo, warn

if TYPE_CHECKING:
    from ..inference.run import Run

CHUNK = 512  # lines read before they are worked on: enough to batch by length, few enough to keep nothing waiting long

QUOTED = 40  # characters of a text that can't be answered

T = TypeVar("T")

RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, a directory of the Hub, or a name on the Hub.")
]
Texts = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; without any, lines of standard input.")
]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def opened(run: str | Path, command: str, device: str) -> Run:
    """The run that a command is to ask. Raises ValueError with the command to use where it is of the wrong kind."""
    from ..inference.run import load
    from ..inference.uses import check

    loaded = load(run, device=device)
    check(loaded, command)
    return loaded


def read(texts: Sequence[str] | None, at_once: int = CHUNK) -> Iterator[list[str]]:
    """The texts in chunks: those given, or the lines of standard input. Invalid UTF-8 is an error naming the line."""
    if texts:
        yield from chunks(texts, 1) if at_once == 1 else [list(texts)]
        return
    if sys.stdin is None:
        raise ValueError("there is no text, and standard input is closed; give texts")
    if sys.stdin.isatty():
        echo("Type a line and press Enter; Ctrl-D ends.", err=True)
        at_once = 1
    yield from chunks(_lines(), at_once)


def each(
    texts: Sequence[str] | None, ask: Callable[[list[str]], Iterable[T]], at_once: int = CHUNK
) -> Iterator[tuple[str, T | None]]:
    """Each text with what is said of it; None for a blank one, about which nobody is asked.

    Raises ValueError naming the first of the given texts that can't be answered. A line of standard input that can't be is
    told in a warning and has None; the others are answered.
    """
    before = 0
    for chunk in read(texts, at_once):
        asked = {i: text for i, text in enumerate(chunk) if text.strip()}
        made, refused = _answers(asked, ask)
        for i, error in refused.items():
            if texts:
                raise ValueError(f"text {before + i + 1}, {_quoted(chunk[i])}: {_alone(error)}")
            warn(f"line {before + i + 1}, {_quoted(chunk[i])}, is not answered: {_alone(error)}")
        for i, text in enumerate(chunk):
            yield text, made.get(i)
        before += len(chunk)


def _answers(
    asked: dict[int, str], ask: Callable[[list[str]], Iterable[T]]
) -> tuple[dict[int, T], dict[int, ValueError]]:
    """What is said of texts, by their numbers, and why nothing can be said of some. Raises ValueError for a mistake that is
    not in one of several texts: all are refused in the same words, or they are refused only together."""
    made, refused, together = dict[int, T](), dict[int, ValueError](), None
    groups = [list(asked)] if asked else []
    while groups:
        group = groups.pop(0)
        try:
            made |= zip(group, ask([asked[i] for i in group]), strict=True)
        except ValueError as error:
            together = together or error
            half = len(group) // 2
            if half:
                groups[:0] = [group[:half], group[half:]]
            else:
                refused[group[0]] = error
    if len(refused) == len(asked) > 1 and len({str(error) for error in refused.values()}) == 1:
        raise next(iter(refused.values()))
    if together is not None and not refused:
        raise together
    return made, refused


def _alone(error: ValueError) -> str:
    """The error message for a single text, without that text's index."""
    return re.sub(r"^(text 1|prompt 0) ", "it ", str(error))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def note_settings(texts: Sequence[str] | None, advice: str) -> None:
    """Warn of texts that were meant as settings, by how they are written."""
    from ..generation.settings import Generation
    from ..recipes.recipe import Recipe

    for text in texts or ():
        found = re.match(r"([a-z_]+)((?:\.[a-z_*0-9]+)*)=\S", text)
        if found and (found[1] in Recipe.model_fields if found[2] else found[1] in Generation.model_fields):
            warn(f"{text!r} is read as a text, though it looks like a setting; {advice}")


def dumps(value: Any) -> str:
    """One line of JSON."""
    from ..core.plain_json import dumps as plain

    return plain(value)


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number} is not UTF-8 (byte {error.start})") from None


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
