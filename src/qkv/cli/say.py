"""What the command line prints. Much of it is not ours: names of classes and files, samples, what a model writes.

Control characters in such text, escape sequences above all, would act on the terminal: clear it, rename its window, hide
what follows. In messages and tables they are shown as `\\x1b`; so they are in results that a terminal shows. Results that go
into a file or a pipe stay as they are, to the byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # but for tabs and the ends of lines


def visible(text: str) -> str:
    """A text with its control characters, and halves of surrogate pairs, spelled out: `\\x1b`, `\\ud800`."""
    return _CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a result, or with `err` a message."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:  # it was closed before we began
        stream.write((visible(text) if err or stream.isatty() else text) + "\n" * nl)
        stream.flush()


def warn(text: str) -> None:
    """Something that the user should know, on standard error."""
    echo(f"qkv: warning: {text}", err=True)


def console(stderr: bool = False) -> Console:
    """What prints tables, trees and progress."""
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    class Visible(Console):
        def render(self, renderable: RenderableType, options: Any = None) -> Iterator[Segment]:
            return _visible(super().render(renderable, options))

    def _visible(segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return Visible(stderr=stderr)
