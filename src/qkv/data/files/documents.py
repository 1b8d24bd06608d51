"""Documents in text files: one per line, per block between empty lines, or per file, in pieces."""

from __future__ import annotations

from pathlib import Path

from ..source import Example, Skipped, Table
from ..tables import ComputedTable
from .cache import Bytes
from .encodings import not_utf8, open_text
from .lines import Lines

PIECE = 64 << 10  # bytes: a file read as one document is split into pieces of about this size
_BLOCK_WEIGHT = 8  # lines in a block, about


def line_documents(lines: Lines) -> Table:
    """The lines of a file as documents."""
    return ComputedTable(len(lines), lambda i: text_example(lines[i]))


def block_documents(lines: Lines) -> Table:
    """The blocks of lines between empty lines as documents."""
    blocks = lines.blocks()
    return ComputedTable(len(blocks), lambda i: text_example(lines.text(*blocks[i].tolist())), weight=_BLOCK_WEIGHT)


def text_example(text: str) -> Example | Skipped:
    """An example of running text; skipped if it is empty."""
    return {"text": text} if text.strip() else Skipped("empty")


class FileDocument:
    """A file as one document, in pieces of about `piece` bytes, cut at line ends or between characters.

    With `begin` and `end`, the part between these bytes, rounded up to whole characters.
    """

    def __init__(
        self, path: str | Path, piece: int = PIECE, begin: int = 0, end: int | None = None, encoding: str = "utf-8"
    ) -> None:
        self.path, self._piece, self._encoding = Path(path).expanduser(), piece, encoding
        data = open_text(self.path, encoding)  # not stored: a folder may have many files
        self._size = len(data)
        self._begin = _between_characters(data, begin)
        self._end = _between_characters(data, self._size if end is None else end)
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
        example = text_example(text)
        if isinstance(example, Skipped) or (start == 0 and stop == self._size):
            return example
        return example | {"piece": "first" if start == 0 else "last" if stop == self._size else "middle"}

    def _cut(self, data: Bytes, i: int) -> int:
        if i == 0 or i >= len(self):
            return self._end if i else self._begin
        at = self._begin + i * self._piece
        line_end = data[at : min(at + self._piece // 4, self._end)].find(b"\n")
        return _between_characters(data, at) if line_end < 0 else at + line_end + 1


def _between_characters(data: Bytes, at: int) -> int:
    """The index of the first byte from `at` on that begins a character; a character has up to three further bytes."""
    near = data[at : at + 4]
    return at + next((n for n, byte in enumerate(near) if byte & 0xC0 != 0x80), len(near))
