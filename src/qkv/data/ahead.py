"""Draw the training texts of a tokenizer in a second process while this process imports PyTorch.

The second process is `python -m qkv.data.ahead SOURCE`. Each line that it prints is a JSON list of texts.
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

_TEXTS = 1000  # per line
_WAIT = 0.005  # seconds between two reads of the growing file
_started: list[TextDrawing] = []


class TextDrawing:
    """A process that draws the training texts of a source and writes them to an unnamed temporary file."""

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
        """Yield the same texts as `source.texts("train")`. If the process fails, this process draws the rest."""
        count = 0
        for line in self._lines():
            texts = json.loads(line)
            count += len(texts)
            yield from texts
        if self.process.wait():
            yield from itertools.islice(self.source.texts("train"), count, None)

    def _lines(self) -> Iterator[bytes]:
        """Yield the complete lines of the file until the process has ended."""
        at, rest = 0, b""
        while True:
            ended = self.process.poll() is not None  # checked before reading, so its last lines are read
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
    """Start drawing the training texts of a source, if this takes time and the machine has a processor to spare."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if source.takes_time and processors > 1 and hasattr(os, "pread"):
        with suppress(OSError):  # if a process or file can't be created, `training_texts` draws the texts
            _started.append(TextDrawing(source))


def training_texts(source: Source) -> Iterator[str]:
    """Return `source.texts("train")`. If `begin` started a process for the source, its texts are read from that process."""
    drawing = next((drawing for drawing in _started if drawing.source == source), None)
    return source.texts("train") if drawing is None else drawing.texts()


def end() -> None:
    """Stop all processes that `begin` started."""
    while _started:
        _started.pop().end()


def main(text: str) -> None:
    texts = Source.from_dict(json.loads(text)).texts("train")
    while some := list(itertools.islice(texts, _TEXTS)):
        print(json.dumps(some), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
