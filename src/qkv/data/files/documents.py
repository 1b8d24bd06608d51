"""Documents in text files: one per line, per block between empty lines, or per file, in pieces."""

from __future__ import annotations

from pathlib import Path

from ..source import Example, Skipped
from .cache import Bytes
from .encodings import not_utf8, open_text
from .lines import Lines

PIECE = 64 << 10  # bytes: a file read as one document comes in pieces of about this size


# -- tables of text -------------------------------------------------------------------------------------------------


class LineDocuments:
    """Documents of one line each."""

    def __init__(self, path: str | Path, encoding: str = "utf-8", strict: bool = True) -> None:
        self._lines = Lines(path, encoding, strict)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        text = self._lines[i]
        return {"text": text} if text.strip() else Skipped("empty")


class BlockDocuments:
    """Documents separated by empty lines."""

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
    """A file as one document, in pieces of about `piece` bytes, cut at line ends or between characters.

    With `begin` and `end`, the part between these bytes, rounded up to whole characters.
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
