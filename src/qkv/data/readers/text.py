"""Plain text for language models: text files and folders of them, with one document per file, line or block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ...core.spec import brief, counted
from ..file_kinds import is_hidden, markup, without_marks
from ..files.cache import Stamp, stamp_of
from ..files.compressed import PACKED, bare_name
from ..files.documents import PIECE, FileDocument, block_documents, line_documents
from ..files.encodings import open_text
from ..files.text_files import TextFiles
from ..shuffle import text_hash
from ..source import SPLITS, Example, Split, Table
from ..tables import ConcatTable, slice_table

SMALLEST_PIECE = 1 << 10  # bytes
_LOOKED = 100  # files whose beginnings are looked at for markup
_FILES_TO_SPLIT_BY = 50  # with fewer files, pieces rather than files are held out


class Text(TextFiles, kind="text"):
    """Text files. A path is a file, or a folder whose files with one of the `suffixes` are read, also in subfolders.

    documents: the unit of a document: a "file", a "line", or a "block" of lines between empty lines.
    shares:    splits the text by position rather than by hash: `(0.9, 0.05, 0.05)` trains on the first 90 %; with two
               numbers, the last share is for both validation and test. Shares are of bytes (cut between characters), or of
               lines or blocks if these are the documents.
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
        """False for pieces of files, which are hardly ever equal: comparing them would mean reading all of the text."""
        return self.documents != "file"

    def gives(self, split: Split) -> bool:
        return self.shares is not None or super().gives(split)

    def notes(self) -> tuple[str, ...]:
        shared = self.shares is not None and len(self.shares) == 2
        left_out = () if self.strict else self._readable("train")[1]
        same = "validation and test are the same text" if shared else ""
        return (*super().notes(), *left_out, *self._marked(), *([same] if same else []))

    def _marked(self) -> Iterator[str]:
        """Yield a note on each kind of markup that is read as text."""
        found: dict[str, list[Path]] = {}
        for number, path in enumerate(self.paths("train")):
            content = open_text(path, self.encoding) if number < _LOOKED and self.strict else None
            if (what := markup(path.with_name(bare_name(path)), content)) is not None:
                found.setdefault(what, []).append(path)
        for what, files in found.items():
            names = ", ".join(path.name for path in files[:3]) + (" …" if files[3:] else "")
            kind = f"{counted(len(files), 'file')} of {what}" if files[1:] else what
            advice = without_marks(files[0], what)
            yield f"{names} ({kind}) read as running text, with all that stands around the texts; {advice}"

    def paths(self, split: Split) -> tuple[Path, ...]:
        names = self.split_setting("path", split)
        names = (names,) if isinstance(names, str) else names
        if not names and split == "train":
            raise ValueError("no training data: give data.path, a text file or a folder of them")
        return tuple(file for name in names for file in self._files(Path(name).expanduser()))

    def _files(self, path: Path) -> list[Path]:
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise ValueError(f"there is no file or folder {brief(path)}")
        endings = (*self.suffixes, *(suffix + packed for suffix in self.suffixes for packed in PACKED))
        found = [file for file in path.rglob("*") if file.name.endswith(endings) and file.is_file()]
        files = sorted(file for file in found if not is_hidden(file.relative_to(path)))
        filled = [file for file in files if file.stat().st_size]
        if not filled:
            state = "only empty files" if files else "no file"
            raise ValueError(
                f"{brief(path)} holds {state} with the suffix {' or '.join(self.suffixes)}; see `suffixes`"
            )
        return filled

    def open(self, split: Split) -> Table:
        paths = self._readable("train" if self.shares else split)[0]
        if self.documents != "file":
            documents = line_documents if self.documents == "line" else block_documents
            table = ConcatTable([documents(self.lines(path)) for path in paths])
            return slice_table(table, *self._span(split, len(table))) if self.shares else table
        sizes = [len(open_text(path, self.encoding)) for path in paths]
        if self.shares:
            return self._stretch(paths, sizes, *self._span(split, sum(sizes)))
        if len(paths) >= _FILES_TO_SPLIT_BY:
            base = os.path.commonpath(path.parent for path in paths)
            return ConcatTable(
                [self._document(path) for path in paths], [path.relative_to(base).as_posix() for path in paths]
            )
        return ConcatTable([self._document(path, _piece(sum(sizes))) for path in paths])

    def _readable(self, split: Split) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The files that can be opened, and notes on skipped ones."""
        paths = self.paths(split)
        if self.strict:
            return paths, ()
        opened, broken = _opened(paths, self.encoding, tuple(stamp_of(path) for path in paths))
        if not opened:
            raise ValueError(f"none of the {len(paths):,} files can be read: {broken[0]}")
        return opened, tuple(f"skipped: {why}" for why in broken)

    def _span(self, split: Split, size: int) -> tuple[int, int]:
        """The part of `size` bytes or documents that belongs to a split."""
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
        """The bytes begin … end − 1 of the concatenated files."""
        parts, offset = [], 0
        for path, size in zip(paths, sizes, strict=True):
            start, stop = max(begin - offset, 0), min(end - offset, size)
            if start < stop:
                parts.append(self._document(path, _piece(end - begin), start, stop))
            offset += size
        return ConcatTable(parts)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        table = getattr(table, "table", table)  # inside the table that skips damaged entries
        if isinstance(table, ConcatTable) and table.names:
            return text_hash(table.names[table.table_of(i)])
        return super().hold_out_key(table, i, example)


@lru_cache(maxsize=16)
def _opened(
    paths: tuple[Path, ...], encoding: str, stamps: tuple[Stamp, ...]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files that can be opened, and why the others can't."""
    opened, broken = [], []
    for path in paths:
        try:
            open_text(path, encoding)
            opened.append(path)
        except ValueError as error:
            broken.append(str(error))
    return tuple(opened), tuple(broken)


def _piece(size: int) -> int:
    """The size of a piece in bytes: small enough that a small corpus has pieces to hold out and shuffle."""
    return min(PIECE, max(SMALLEST_PIECE, size // 100))
