"""Text files as random access: lines, blocks and pieces of files of any size, plain or packed, without reading them in.

Lines end at `\\n` (or `\\r\\n`) and nowhere else, so that the two files of a parallel corpus can't drift apart.
"""

from __future__ import annotations

import bisect
import codecs
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..source import Example, Skipped, Table
from . import cache as cached
from .cache import Bytes, Stamp, kept, stamp_of
from .compressed import open_bytes as open_bytes
from .encodings import not_utf8, open_text, text_of

PIECE = 64 << 10  # bytes: a file read as one document comes in pieces of about this size
LONGEST = 64 << 20  # bytes: no line, and no block of lines, of a text is longer


# -- lines ----------------------------------------------------------------------------------------------------------


class Lines:
    """The lines of a file by number, from an index of where each ends.

    Opening it checks the whole file: that it is UTF-8, and that no line is longer than `LONGEST`. With `strict=False` a line
    is checked when it is read.
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8", strict: bool = True) -> None:
        self.path = Path(path).expanduser()
        self._data = open_text(self.path, encoding)
        self._ends = _line_ends(self.path.resolve(), stamp_of(self.path), encoding, strict)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> str:
        return self.text(i, i + 1)

    def text(self, start: int, stop: int) -> str:
        """Lines start … stop − 1 as they stand, without the last line's end."""
        begin, end = int(self._ends[start - 1]) + 1 if start else 0, int(self._ends[stop - 1])
        if end - begin > LONGEST:
            raise too_long(self.path, start + 1, "line" if stop - start == 1 else "block that begins there")
        try:
            text = self._data[begin:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, start + 1 + error.object[: error.start].count(b"\n")) from None
        return (text if start else text.removeprefix("\ufeff")).removesuffix("\r")

    def first(self, beginning: bytes, anywhere: bytes) -> int | None:
        """The first line that begins with something, or has something else in it."""
        mark = 3 if self._data[:3] == codecs.BOM_UTF8 else 0
        if self._data[mark : mark + len(beginning)] == beginning:
            return 0
        found = [self._data.find(b"\n" + beginning), self._data.find(anywhere)]
        near = min((at + (what == 0) for what, at in enumerate(found) if at >= 0), default=None)
        return None if near is None else int(np.searchsorted(self._ends, near))

    def blocks(self) -> NDArray[np.int64]:
        """(n, 2): first line and line after the last of every run of lines between empty ones."""
        lengths = np.diff(self._ends, prepend=-1) - 1
        empty = lengths == 0
        for i in np.flatnonzero(lengths == 1):  # a lone carriage return
            empty[i] = not self[int(i)].strip()
        edges = np.diff(np.concatenate([[True], empty, [True]]).astype(np.int8))
        return np.stack([np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)], 1)


@lru_cache(maxsize=256)
def _line_ends(path: Path, stamp: Stamp, encoding: str, strict: bool) -> NDArray[np.int64]:
    data = text_of(path, stamp, encoding)
    small = cached.IN_MEMORY if len(data) <= cached.IN_MEMORY else 0
    what = f"{encoding}.lines" if strict else f"{encoding}-unchecked.lines"
    ends = kept(path, stamp, what, lambda: (found.tobytes() for found in _scan(data, path, strict)), small)
    return np.frombuffer(ends, np.int64)


def _scan(data: Bytes, path: Path, strict: bool = True) -> Iterator[NDArray[np.int64]]:
    """Where the lines end, chunk by chunk; if strict, raises ValueError at the first byte that is not UTF-8, and at a line
    that is too long."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, begin = 0, 0
    for start in range(0, len(data), cached.CHUNK):
        chunk = data[start : start + cached.CHUNK]
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
        f"{str(path)!r}, line {line:,}: the {what} has more than {LONGEST >> 20} MiB, which is not read at once; "
        "break it into shorter ones"
    )


def whole_text(path: str | Path, encoding: str = "utf-8") -> str:
    """All of a file's text, without a byte-order mark. Raises ValueError as `Lines` does."""
    path = Path(path).expanduser()
    data = open_text(path, encoding)
    for _ in _scan(data, path):
        pass
    return bytes(data).decode("utf-8").removeprefix("\ufeff")


# -- tables of text -------------------------------------------------------------------------------------------------


class LineDocuments:
    """Every line a document."""

    def __init__(self, path: str | Path, encoding: str = "utf-8", strict: bool = True) -> None:
        self._lines = Lines(path, encoding, strict)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        text = self._lines[i]
        return {"text": text} if text.strip() else Skipped("empty")


class BlockDocuments:
    """Every run of lines between empty lines a document."""

    weight = 8

    def __init__(self, path: str | Path, encoding: str = "utf-8", strict: bool = True) -> None:
        self._lines = Lines(path, encoding, strict)
        self._blocks = self._lines.blocks()

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, i: int) -> Example | Skipped:
        start, stop = self._blocks[i].tolist()
        text = self._lines.text(start, stop)
        return {"text": text} if text.strip() else Skipped("empty")


class FileDocument:
    """A file as one document, in pieces of about `piece` bytes, cut at the end of a line or between characters.

    With `begin` and `end`, the stretch of it between these bytes (or the ends of the characters that they fall into).
    """

    def __init__(
        self, path: str | Path, piece: int = PIECE, begin: int = 0, end: int | None = None, encoding: str = "utf-8"
    ) -> None:
        self.path, self._piece, self._encoding = Path(path).expanduser(), piece, encoding
        data = open_text(self.path, encoding)  # not held: a folder may have many files
        self._whole = len(data)
        self._begin = _between_characters(data, begin)
        self._end = _between_characters(data, self._whole if end is None else end)
        self.weight = max(1, piece >> 10)

    def __len__(self) -> int:
        return max(1, round((self._end - self._begin) / self._piece))

    def __getitem__(self, i: int) -> Example | Skipped:
        data = open_text(self.path, self._encoding)
        start, stop = self._cut(data, i), self._cut(data, i + 1)
        try:
            text = data[start:stop].decode("utf-8").removeprefix("\ufeff" if start == 0 else "")
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, data[: start + error.start].count(b"\n") + 1) from None
        if not text.strip():
            return Skipped("empty")
        if start == 0 and stop == self._whole:
            return {"text": text}
        return {"text": text, "piece": "first" if start == 0 else "last" if stop == self._whole else "middle"}

    def _cut(self, data: Bytes, i: int) -> int:
        if i == 0 or i >= len(self):
            return self._end if i else self._begin
        at = self._begin + i * self._piece
        line_end = data[at : min(at + self._piece // 4, self._end)].find(b"\n")
        return _between_characters(data, at) if line_end < 0 else at + line_end + 1


def _between_characters(data: Bytes, at: int) -> int:
    """This byte, or the next that begins a character; no character has more than three others."""
    near = data[at : at + 4]
    return at + next((n for n, byte in enumerate(near) if byte & 0xC0 != 0x80), len(near))


class Stretch:
    """The entries start … stop − 1 of a table."""

    def __init__(self, table: Table, start: int, stop: int) -> None:
        self._table, self._start, self._size = table, start, stop - start
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example | Skipped | None:
        if not 0 <= i < self._size:
            raise IndexError(i)
        return self._table[self._start + i]


class Joined:
    """Tables one after the other, with their names where they have some."""

    def __init__(self, tables: Sequence[Table], names: Sequence[str] = ()) -> None:
        self._tables, self.names = tables, names
        self._starts = np.cumsum([0, *(len(table) for table in tables)]).tolist()
        self.weight = max((getattr(table, "weight", 1) for table in tables), default=1)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, i: int) -> Example | Skipped | None:
        which = self.table_of(i)
        return self._tables[which][i - self._starts[which]]

    def table_of(self, i: int) -> int:
        return bisect.bisect_right(self._starts, i) - 1
