"""Text files as random access: lines, blocks and pieces of files of any size, plain or packed, without reading them in.

A plain file is memory-mapped. A `.gz` or `.xz` file is inflated once (into memory when small, else into the cache folder,
`$QKV_CACHE` or `~/.cache/qkv`), because a compressed file can't be shuffled or resumed in its middle. Lines end at
`\\n` (or `\\r\\n`) and nowhere else, so that the two files of a parallel corpus can't drift apart.
"""

from __future__ import annotations

import bisect
import codecs
import contextlib
import gzip
import lzma
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .shuffle import text_hash
from .sources import Example, Skipped, Table

Bytes = bytes | mmap.mmap

IN_MEMORY = 32 << 20  # bytes: a larger inflated file or line index lives on disk
PIECE = 64 << 10  # bytes: a file read as one document comes in pieces of about this size
_CHUNK = 1 << 20
_PACKED: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}


def open_bytes(path: str | Path) -> Bytes:
    """The bytes of a file, inflated where its name ends in .gz or .xz. Raises ValueError when missing, empty or broken."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}" if not path.is_dir() else f"{str(path)!r} is a folder")
    stat = path.stat()
    data = _opened(path.resolve(), stat.st_size, stat.st_mtime_ns)
    if len(data) == 0:
        raise ValueError(f"{str(path)!r} is empty")
    return data


@lru_cache(maxsize=256)
def _opened(path: Path, size: int, mtime_ns: int) -> Bytes:
    if path.suffix in _PACKED:
        return _inflated(path, size, mtime_ns)
    return _mapped(path) if size else b""


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _inflated(path: Path, size: int, mtime_ns: int) -> Bytes:
    cached = cache_folder() / f"{text_hash(str(path), str(size), str(mtime_ns)):016x}.txt"
    if cached.exists():
        return _mapped(cached)
    try:
        with _PACKED[path.suffix](path) as packed:
            head = packed.read(IN_MEMORY + 1)
            if len(head) <= IN_MEMORY:
                return head
            with _written_beside(cached) as out:
                out.write(head)
                shutil.copyfileobj(packed, out, _CHUNK)
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "gzip" if path.suffix == ".gz" else "xz"
        raise ValueError(f"{str(path)!r} is not a whole {kind} file ({error})") from None
    return _mapped(cached)


def cache_folder() -> Path:
    """Where inflated files and line indexes of large files are kept; safe to delete at any time."""
    base = os.environ.get("QKV_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    try:
        Path(base).mkdir(parents=True, exist_ok=True)
    except OSError:
        base = Path(tempfile.gettempdir()) / f"qkv-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
        base.mkdir(parents=True, exist_ok=True)
    return Path(base)


@contextlib.contextmanager
def _written_beside(path: Path) -> Iterator[tempfile._TemporaryFileWrapper]:  # type: ignore[type-arg]
    """A file that gets its name only when it is whole, so that processes can race for it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as out:
        try:
            yield out
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise
    Path(out.name).replace(path)


# -- lines ----------------------------------------------------------------------------------------------------------


class Lines:
    """The lines of a file by number, from an index of where each ends. Opening it checks the whole file's UTF-8."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._data = open_bytes(self.path)
        stat = self.path.stat()
        self._ends = _line_ends(self.path.resolve(), stat.st_size, stat.st_mtime_ns)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> str:
        return self.text(i, i + 1)

    def text(self, start: int, stop: int) -> str:
        """Lines start … stop − 1 as they stand, without the last line's end."""
        begin = int(self._ends[start - 1]) + 1 if start else 0
        text = self._data[begin : int(self._ends[stop - 1])].decode("utf-8")
        return (text if start else text.removeprefix("\ufeff")).removesuffix("\r")

    def blocks(self) -> NDArray[np.int64]:
        """(n, 2): first line and line after the last of every run of lines between empty ones."""
        lengths = np.diff(self._ends, prepend=-1) - 1
        empty = lengths == 0
        for i in np.flatnonzero(lengths == 1):  # a lone carriage return
            empty[i] = not self[int(i)].strip()
        edges = np.diff(np.concatenate([[True], empty, [True]]).astype(np.int8))
        return np.stack([np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)], 1)


@lru_cache(maxsize=256)
def _line_ends(path: Path, size: int, mtime_ns: int) -> NDArray[np.int64]:
    data = _opened(path, size, mtime_ns)
    if len(data) <= IN_MEMORY:
        return np.concatenate(list(_scan(data, path)))
    cached = cache_folder() / f"{text_hash(str(path), str(size), str(mtime_ns)):016x}.lines"
    if not cached.exists():
        with _written_beside(cached) as out:
            for ends in _scan(data, path):
                out.write(ends.tobytes())
    return np.memmap(cached, dtype=np.int64, mode="r")


def _scan(data: Bytes, path: Path) -> Iterator[NDArray[np.int64]]:
    """Where the lines end, chunk by chunk; raises ValueError at the first byte that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 0
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        last = start + len(chunk) == len(data)
        try:
            decoder.decode(chunk, final=last)
        except UnicodeDecodeError as error:
            fault = max(0, error.start - (len(error.object) - len(chunk)))
            raise not_utf8(path, lines + chunk[:fault].count(b"\n") + 1) from None
        ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + start
        lines += len(ends)
        yield ends
    if data[len(data) - 1 :] != b"\n":
        yield np.array([len(data)])


def not_utf8(path: Path, line: int) -> ValueError:
    return ValueError(
        f"{str(path)!r}, line {line:,}, is not valid UTF-8; convert the file first (iconv -f latin1 -t utf-8, say)"
    )


# -- tables of text -------------------------------------------------------------------------------------------------


class LineDocuments:
    """Every line a document."""

    def __init__(self, path: str | Path) -> None:
        self._lines = Lines(path)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        text = self._lines[i]
        return {"text": text} if text.strip() else Skipped("empty")


class BlockDocuments:
    """Every run of lines between empty lines a document."""

    weight = 8

    def __init__(self, path: str | Path) -> None:
        self._lines = Lines(path)
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

    def __init__(self, path: str | Path, piece: int = PIECE, begin: int = 0, end: int | None = None) -> None:
        self.path, self._piece = Path(path).expanduser(), piece
        data = open_bytes(self.path)  # not held: a folder may have many files
        self._whole = len(data)
        self._begin = _between_characters(data, begin)
        self._end = _between_characters(data, self._whole if end is None else end)
        self.weight = max(1, piece >> 10)

    def __len__(self) -> int:
        return max(1, round((self._end - self._begin) / self._piece))

    def __getitem__(self, i: int) -> Example | Skipped:
        data = open_bytes(self.path)
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
