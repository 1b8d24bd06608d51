"""Print to the terminal, with control characters escaped.

Much of what the command line prints comes from outside: names of classes and files, samples, the output of a model. Control
characters in it, above all escape sequences, would act on the terminal: clear it, rename its window, hide what follows.
Messages, tables, and results printed to a terminal show them as `\\x1b`. Results written to a file or a pipe are unchanged,
to the byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all but tabs and line feeds


def visible(text: str) -> str:
    """Escape control characters and halves of surrogate pairs in a text: `\\x1b`, `\\ud800`."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a result, or, with `err`, a message on standard error."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:  # None if the stream was closed before Python started
        stream.write((visible(text) if err or stream.isatty() else text) + "\n" * nl)
        stream.flush()


def echo_json(value: object) -> None:
    """Print a value as indented JSON."""
    from json import dumps

    echo(dumps(value, indent=2, ensure_ascii=False))


def warn(text: str) -> None:
    """Print a warning on standard error."""
    echo(f"qkv: warning: {text}", err=True)


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar if standard error is a terminal; the function that is yielded takes the share that is done."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def console(stderr: bool = False) -> Console:
    """A console for tables, trees and progress bars that escapes control characters."""
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    class Visible(Console):
        def render(self, renderable: RenderableType, options: Any = None) -> Iterator[Segment]:
            return _visible(super().render(renderable, options))

    def _visible(segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Visible(stderr=stderr)
