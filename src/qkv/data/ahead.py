"""Texts that a tokenizer will be trained on, drawn by another process while this one imports PyTorch.

`python -m qkv.data.ahead SOURCE` is that process: it writes a source's texts to its output, some in each line, as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress

from .source import Source

_TEXTS = 1000  # in a line
_WAIT = 0.005  # seconds between two looks at a file that grows
_started: list[TextDrawing] = []


class TextDrawing:
    """A process that draws the training texts of a source into a file without a name."""

    def __init__(self, source: Source) -> None:
        self.source, self.file = source, tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qkv.data.ahead", json.dumps(source.to_dict())],
            stdin=subprocess.DEVNULL,
            stdout=self.file,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so Ctrl-C does not reach it
        )

    def texts(self) -> Iterator[str]:
        """What `source.texts("train")` gives. If the process fails, the rest is drawn here."""
        count = 0
        for line in self._lines():
            texts = json.loads(line)
            count += len(texts)
            yield from texts
        if self.process.wait():
            yield from itertools.islice(self.source.texts("train"), count, None)

    def _lines(self) -> Iterator[bytes]:
        """The complete lines of the file, until the process has ended."""
        at, rest = 0, b""
        while True:
            ended = self.process.poll() is not None  # first: what it wrote before its end is then read
            more = os.pread(self.file.fileno(), 1 << 20, at)
            at += len(more)
            *lines, rest = (rest + more).split(b"\n")
            yield from lines
            if not more and ended:
                return
            if not more:
                time.sleep(_WAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.file.close()


def begin(source: Source) -> None:
    """Start to draw the training texts of a source whose texts take time, if this machine can do so beside other work."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if source.takes_time and processors > 1 and hasattr(os, "pread"):
        with suppress(OSError):  # without a second process or room for a file, they are drawn here
            _started.append(TextDrawing(source))


def training_texts(source: Source) -> Iterator[str]:
    """`source.texts("train")`, by the process that was begun for the source, if there is one."""
    drawing = next((drawing for drawing in _started if drawing.source == source), None)
    return source.texts("train") if drawing is None else drawing.texts()


def end() -> None:
    """End what was begun."""
    while _started:
        _started.pop().end()


def main(text: str) -> None:
    texts = Source.from_dict(json.loads(text)).texts("train")
    while some := list(itertools.islice(texts, _TEXTS)):
        print(json.dumps(some), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
