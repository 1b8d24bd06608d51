"""Read texts from the command line or from standard input, for the commands that use a run.

A blank text is not given to the model; its output is a blank line, or in JSON an object whose answer is null or empty. A
line of standard input that can't be processed, such as one longer than the model's context, has the same output and a
warning. Lines of input and output therefore correspond.
"""

from __future__ import annotations

import gc
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .say import echo, warn

if TYPE_CHECKING:
    from ..inference.run import Run

CHUNK = 512  # lines read before they are processed: enough to batch by length, and few enough for a short delay

QUOTED = 40  # characters of a text shown in a message

T = TypeVar("T")


def load_run(run: str | Path, command: str, device: str) -> Run:
    """Load the run that a command uses. Raises ValueError naming the right command for a run of another kind."""
    with uncollected():
        from ..inference.run import load
        from ..inference.uses import check

        loaded = load(run, device=device)
        check(loaded, command)
    return loaded


def small_english() -> str:
    """The name of the model that comes with the package, for a command without a run; says so on standard error."""
    from ..directories.locate import SMALL_ENGLISH

    echo(f"The model is {SMALL_ENGLISH}, which comes with qkv: a small language model of English books.", err=True)
    return SMALL_ENGLISH


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while importing and loading, because what is loaded stays alive.

    Afterwards, `gc.freeze` excludes the loaded objects from later collections.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


def read(texts: Sequence[str] | None, at_once: int = CHUNK) -> Iterator[list[str]]:
    """Yield the texts, or the lines of standard input, in chunks. Raises ValueError naming the line for invalid UTF-8."""
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
    texts: Sequence[str] | None, answer: Callable[[list[str]], Iterable[T]], at_once: int = CHUNK, noun: str = "text"
) -> Iterator[tuple[str, T | None]]:
    """Yield each text with its answer, which is None for a blank text. `noun` is what a text is: a "file", if it names one.

    Raises ValueError naming the first of the given texts that can't be answered. A line of standard input that can't be
    answered has a warning and the answer None.
    """
    before = 0
    for chunk in read(texts, at_once):
        answers, errors = _answer({i: text for i, text in enumerate(chunk) if text.strip()}, answer)
        for i, error in errors.items():
            if texts:
                raise ValueError(f"{noun} {before + i + 1}, {_quoted(chunk[i])}: {_alone(error)}")
            warn(f"line {before + i + 1}, {_quoted(chunk[i])}, is not answered: {_alone(error)}")
        for i, text in enumerate(chunk):
            yield text, answers.get(i)
        before += len(chunk)


def _answer(
    texts: dict[int, str], answer: Callable[[list[str]], Iterable[T]]
) -> tuple[dict[int, T], dict[int, ValueError]]:
    """The answers to texts, and the errors of texts that have none, by index.

    Texts are answered together. If this fails, they are halved until the texts that can't be answered are found. Raises
    ValueError for a mistake that is not in one of the texts: all fail with the same message, or only all together.
    """
    answers, errors, first_error = dict[int, T](), dict[int, ValueError](), None
    groups = [list(texts)] if texts else []
    while groups:
        group = groups.pop(0)
        try:
            answers |= zip(group, answer([texts[i] for i in group]), strict=True)
        except ValueError as error:
            first_error = first_error or error
            half = len(group) // 2
            if half:
                groups[:0] = [group[:half], group[half:]]
            else:
                errors[group[0]] = error
    if len(errors) == len(texts) > 1 and len({str(error) for error in errors.values()}) == 1:
        raise next(iter(errors.values()))
    if first_error is not None and not errors:
        raise first_error
    return answers, errors


def _alone(error: ValueError) -> str:
    """The error message for a single text, without that text's index."""
    return re.sub(r"^(text 1|prompt 0) ", "it ", str(error))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def warn_of_settings(texts: Sequence[str] | None, advice: str) -> None:
    """Warn about texts that look like settings, `KEY=VALUE`."""
    for text in texts or ():
        match = re.match(r"([a-z_]+)((?:\.[a-z_*0-9]+)*)=\S", text)
        if match is None:
            continue
        from ..generation.settings import Generation
        from ..recipes.recipe import Recipe

        if match[1] in Recipe.model_fields if match[2] else match[1] in Generation.model_fields:
            warn(f"{text!r} is read as a text, though it looks like a setting; {advice}")


def dumps(value: Any) -> str:
    """A value as one line of JSON."""
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
