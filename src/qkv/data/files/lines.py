"""Random access to the lines of text files of any size, plain or compressed, without loading them into memory.

Lines end at `\\n` (or `\\r\\n`) and nowhere else, so the two files of a parallel corpus stay aligned.
"""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief
from . import cache
from .cache import Bytes, Stamp, derived, stamp_of
from .encodings import not_utf8, open_text, text_of

LONGEST = 64 << 20  # bytes in a line, or in a block of lines, at most
_BLANK = 80  # bytes in a line of spaces, at most
_SPACES = (*b" \t\r\v\f", "\u00a0".encode()[0])  # first bytes of spaces


class Lines:
    """The lines of a file by index, from an index of line ends.

    Opening it checks that the whole file is UTF-8 and that no line is longer than `LONGEST`. With `strict=False` a line is
    checked when it is read.
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8", strict: bool = True) -> None:
        self.path = Path(path).expanduser()
        self._data = open_text(self.path, encoding)
        self._ends = _line_ends(self.path.resolve(), stamp_of(self.path), encoding, strict)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> str:
        return self.text(i, i + 1)

    def check_ends(self) -> Lines:
        """Return self. Raises ValueError if the file is a single line because its lines end with carriage returns alone."""
        if len(self) == 1 and self[0].count("\r") > 1:
            name = shlex.quote(self.path.name)
            raise ValueError(
                f"{brief(self.path)} is one line, because its lines end with carriage returns alone, as on old Macs; "
                f"convert them (tr '\\r' '\\n' < {name} > NEW)"
            )
        return self

    def where(self, i: int) -> str:
        """The file and the number of a line, for messages: `'a.txt', line 7`."""
        return f"{str(self.path)!r}, line {i + 1:,}"

    def text(self, start: int, stop: int) -> str:
        """Lines start … stop − 1, without the end of the last line."""
        begin, end = int(self._ends[start - 1]) + 1 if start else 0, int(self._ends[stop - 1])
        if end - begin > LONGEST:
            raise too_long(self.path, start + 1, "line" if stop - start == 1 else "block that begins there")
        try:
            text = self._data[begin:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, start + 1 + error.object[: error.start].count(b"\n")) from None
        return (text if start else text.removeprefix("\ufeff")).removesuffix("\r")

    def first(self, beginning: bytes, anywhere: bytes) -> int | None:
        """The first line that begins with `beginning` or contains `anywhere`."""
        mark = 3 if self._data[:3] == codecs.BOM_UTF8 else 0
        if self._data[mark : mark + len(beginning)] == beginning:
            return 0
        line_start, within = self._data.find(b"\n" + beginning) + 1, self._data.find(anywhere)
        places = [at for at in (line_start or -1, within) if at >= 0]
        return int(np.searchsorted(self._ends, min(places))) if places else None

    def having_more(self, mark: bytes, most: int) -> list[int]:
        """The lines with more than `most` of a byte."""
        found, begin, line = list[int](), 0, 0
        while line < len(self):
            stop = max(line + 1, int(np.searchsorted(self._ends, begin + cache.CHUNK)))
            end = int(self._ends[stop - 1])
            places = np.flatnonzero(np.frombuffer(self._data[begin:end], np.uint8) == mark[0]) + begin
            counts = np.diff(np.searchsorted(places, self._ends[line:stop]), prepend=0)
            found += (np.flatnonzero(counts > most) + line).tolist()
            begin, line = end, stop
        return found

    def blocks(self) -> NDArray[np.int64]:
        """(n, 2): the first line, and the line after the last, of each block of lines between lines that are empty or hold
        only spaces."""
        lengths = np.diff(self._ends, prepend=-1) - 1
        empty = lengths == 0
        short = np.flatnonzero((lengths > 0) & (lengths <= _BLANK))
        leads = np.array([self._data[int(at)] for at in self._ends[short] - lengths[short]], np.uint8)
        for i in short[np.isin(leads, _SPACES)]:
            empty[i] = not self[int(i)].strip()
        edges = np.diff(np.concatenate([[True], empty, [True]]).astype(np.int8))
        return np.stack([np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)], 1)


@lru_cache(maxsize=256)
def _line_ends(path: Path, stamp: Stamp, encoding: str, strict: bool) -> NDArray[np.int64]:
    data = text_of(path, stamp, encoding)
    small = cache.IN_MEMORY if len(data) <= cache.IN_MEMORY else 0
    what = f"{encoding}.lines" if strict else f"{encoding}-unchecked.lines"
    ends = derived(path, stamp, what, lambda: (chunk.tobytes() for chunk in _scan(data, path, strict)), small)
    return np.frombuffer(ends, np.int64)


def _scan(data: Bytes, path: Path, strict: bool = True) -> Iterator[NDArray[np.int64]]:
    """Positions of line ends, chunk by chunk. If strict, raises ValueError at invalid UTF-8 or an over-long line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, begin = 0, 0
    for start in range(0, len(data), cache.CHUNK):
        chunk = data[start : start + cache.CHUNK]
        last = start + len(chunk) == len(data)
        if strict:
            try:
                decoder.decode(chunk, final=last)
            except UnicodeDecodeError as error:
                fault = max(0, error.start - (len(error.object) - len(chunk)))
                raise not_utf8(path, lines + chunk[:fault].count(b"\n") + 1) from None
        ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + start
        widths = np.diff(ends, prepend=begin - 1, append=start + len(chunk)) - 1
        if strict and widths.max() > LONGEST:
            raise too_long(path, lines + int(widths.argmax()) + 1)
        lines += len(ends)
        begin = int(ends[-1]) + 1 if len(ends) else begin
        yield ends
    if data[len(data) - 1 :] != b"\n":
        yield np.array([len(data)])


def too_long(path: Path, line: int, what: str = "line") -> ValueError:
    return ValueError(
        f"{str(path)!r}, line {line:,}: the {what} has more than {LONGEST >> 20} MiB, the maximum; break it "
        "into shorter ones"
    )


def lines_of_files(paths: Iterable[str | Path]) -> Iterator[str]:
    """The lines of several text files, plain or compressed, which are all opened, and so checked, first."""
    files = [Lines(path) for path in paths]
    return (lines[i] for lines in files for i in range(len(lines)))
