"""Plain text for language models: text files and folders of them, as documents per file, line or block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ...core.shuffle import text_hash
from ..files.cache import Stamp, stamp_of
from ..files.compressed import PACKED, bare_name
from ..files.documents import PIECE, BlockDocuments, FileDocument, LineDocuments
from ..files.encodings import open_text
from ..files.text_files import TextFiles
from ..source import SPLITS, Example, Split, Table
from ..tables import ConcatTable, SliceTable

SMALLEST_PIECE = 1 << 10  # bytes
_MARKED = (".csv", ".tsv", ".jsonl", ".json", ".html", ".xml")  # files in which texts stand among other things
_FILES_TO_SPLIT_BY = 50  # with fewer files than this, pieces rather than files are held out


class Text(TextFiles, kind="text"):
    """Text files. A path is a file, or a folder whose files with one of the `suffixes` are read, also in subfolders.

    `documents` says what one document is: a whole "file", a "line", or a "block" of lines between empty lines.

    `shares` splits the text by position in place of holding parts of it out by hash: `(0.9, 0.05, 0.05)` trains on the
    first 90 %, with two numbers the last share is for both validation and test. Shares are of bytes (a cut falls between
    characters), or of lines or blocks where these are the documents.
    """

    path: str | tuple[str, ...] = ()
    validation_path: str | tuple[str, ...] = ()
    test_path: str | tuple[str, ...] = ()
    suffixes: tuple[str, ...] = Field(default=(".txt",), min_length=1)
    documents: Literal["file", "line", "block"] = "file"
    shares: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.shares is None:
            return self
        if not 2 <= len(self.shares) <= 3 or min(self.shares) <= 0 or not 0 < sum(self.shares) <= 1 + 1e-9:
            raise ValueError(
                f"shares are two or three numbers above 0 (for training, validation, test) that add up to 1 at most, "
                f"not {list(self.shares)}"
            )
        if self.validation_path or self.test_path:
            raise ValueError("give shares, or validation_path and test_path, not both")
        return self

    @property
    def compared(self) -> bool:
        """Not in pieces of files: two of them are hardly ever equal, and to look for it is to read all of the text."""
        return self.documents != "file"

    def gives(self, split: Split) -> bool:
        return self.shares is not None or super().gives(split)

    def notes(self) -> tuple[str, ...]:
        shared = self.shares is not None and len(self.shares) == 2
        marked = sorted({path.name for path in self.paths("train") if Path(bare_name(path)).suffix in _MARKED})
        raw = f"{', '.join(marked[:3])} read as running text, with all that stands around the texts" if marked else ""
        left_out = () if self.strict else self._sound("train")[1]
        same = "validation and test are the same text" if shared else ""
        return (*super().notes(), *left_out, *(note for note in (raw, same) if note))

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        given = (given,) if isinstance(given, str) else given
        if not given and split == "train":
            raise ValueError("no training data: give data.path, a text file or a folder of them")
        return tuple(file for name in given for file in self._files(Path(name).expanduser()))

    def _files(self, path: Path) -> list[Path]:
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise ValueError(f"there is no file or folder {str(path)!r}")
        endings = (*self.suffixes, *(suffix + packed for suffix in self.suffixes for packed in PACKED))
        found = sorted(file for file in path.rglob("*") if file.name.endswith(endings) and file.is_file())
        filled = [file for file in found if file.stat().st_size]
        if not filled:
            state = "only empty files" if found else "no file"
            raise ValueError(
                f"{str(path)!r} holds {state} with the suffix {' or '.join(self.suffixes)}; see `suffixes`"
            )
        return filled

    def open(self, split: Split) -> Table:
        paths = self._sound("train" if self.shares else split)[0]
        if self.documents != "file":
            documents = LineDocuments if self.documents == "line" else BlockDocuments
            table = ConcatTable([documents(path, self.encoding, self.strict) for path in paths])
            return SliceTable(table, *self._span(split, len(table))) if self.shares else table
        sizes = [len(open_text(path, self.encoding)) for path in paths]
        if self.shares:
            return self._stretch(paths, sizes, *self._span(split, sum(sizes)))
        if len(paths) >= _FILES_TO_SPLIT_BY:
            base = os.path.commonpath(path.parent for path in paths)
            return ConcatTable(
                [self._document(path) for path in paths], [path.relative_to(base).as_posix() for path in paths]
            )
        return ConcatTable([self._document(path, _piece(sum(sizes))) for path in paths])

    def _sound(self, split: Split) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The files that can be opened, and notes on those that are skipped."""
        paths = self.paths(split)
        if self.strict:
            return paths, ()
        found, broken = _opened(paths, self.encoding, tuple(stamp_of(path) for path in paths))
        if not found:
            raise ValueError(f"none of the {len(paths):,} files can be read: {broken[0]}")
        return found, tuple(f"skipped: {why}" for why in broken)

    def _span(self, split: Split, size: int) -> tuple[int, int]:
        """The part of `size` bytes or documents that a split has."""
        assert self.shares is not None
        number = min(SPLITS.index(split), len(self.shares) - 1)
        begin, end = (int(size * round(sum(self.shares[:n]), 9)) for n in (number, number + 1))
        if begin == end:
            raise ValueError(
                f"{', '.join(map(str, self.paths('train')))}: too little text there for a share of "
                f"{self.shares[number]} for {split}"
            )
        return begin, end

    def _document(self, path: Path, piece: int = PIECE, begin: int = 0, end: int | None = None) -> FileDocument:
        return FileDocument(path, piece, begin, end, self.encoding)

    def _stretch(self, paths: Sequence[Path], sizes: Sequence[int], begin: int, end: int) -> Table:
        """The bytes begin … end − 1 of files that follow one another."""
        parts, offset = [], 0
        for path, size in zip(paths, sizes, strict=True):
            start, stop = max(begin - offset, 0), min(end - offset, size)
            if start < stop:
                parts.append(self._document(path, _piece(end - begin), start, stop))
            offset += size
        return ConcatTable(parts)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        table = getattr(table, "table", table)  # behind what leaves out what is damaged
        if isinstance(table, ConcatTable) and table.names:
            return text_hash(table.names[table.table_of(i)])
        return super().hold_out_key(table, i, example)


@lru_cache(maxsize=16)
def _opened(
    paths: tuple[Path, ...], encoding: str, stamps: tuple[Stamp, ...]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files that can be opened, and why the others can't."""
    found, broken = [], []
    for path in paths:
        try:
            open_text(path, encoding)
            found.append(path)
        except ValueError as error:
            broken.append(str(error))
    return tuple(found), tuple(broken)


def _piece(size: int) -> int:
    """Bytes in a piece, so that a small corpus has pieces to hold out and to shuffle."""
    return min(PIECE, max(SMALLEST_PIECE, size // 100))
