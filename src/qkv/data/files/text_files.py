"""Base class of sources that read text files: the encoding, and the policy for lines that can't be read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from ..holdout import FileSource
from ..source import SPLITS, Example, OnError, Skipped, Split, Table
from ..tables import ComputedTable, weight_of
from .compressed import existing, suffix_of
from .csv_dialect import Mark, Quotes, Separator
from .csv_tsv import Cells, Form, named_rows, notes_of
from .encodings import Encoding, is_unicode, note_of, nul_note, open_text
from .json_lines import holds_json, json_entries, json_table
from .lines import Lines
from .parquet import SUFFIX, parquet_table

_MOST_WARNINGS = 3  # per table
_MOST_NOTED = 3  # files whose encoding is told


class TextFiles(FileSource):
    """Text files.

    encoding: the character encoding. UTF-16 and UTF-32 files with a byte-order mark are recognized.
    on_error: for a line that is not in its encoding, not valid JSON or too long: "raise" an error, or "skip" it with a
              warning for the first few; all are counted.
    """

    encoding: Encoding = "utf-8"
    on_error: OnError = "raise"

    @property
    def compared(self) -> bool:
        return True

    @property
    def strict(self) -> bool:
        return self.on_error == "raise"

    def notes(self) -> tuple[str, ...]:
        files = [path for path in self.paths("train")[:_MOST_NOTED] if suffix_of(path) != SUFFIX]
        read = () if is_unicode(self.encoding) else (note_of(path, self.encoding) for path in files)
        nul = map(self._nul, files)
        return (*(note for note in (*read, *nul) if note is not None), *super().notes())

    def _nul(self, path: Path) -> str | None:
        with suppress(ValueError):  # of a file that can't be read, which is told
            return nul_note(path, open_text(path, self.encoding))
        return None

    def lines(self, path: Path) -> Lines:
        return Lines(path, self.encoding, self.strict).check_ends()

    def records(self, path: Path, example: Callable[[Any, str], Example | Skipped]) -> Table:
        """The table of a JSONL or Parquet file, or of a JSON file that is one list: `example(record, where)` for each
        record."""
        if suffix_of(path) == SUFFIX:
            return parquet_table(path, example)
        entries = json_entries(existing(path))
        if entries is not None:
            return ComputedTable(len(entries), lambda i: example(entries[i], f"{str(path)!r}, entry {i + 1:,}"))
        lines = self.lines(path)
        return json_table(lines, lambda record, i: example(record, lines.where(i)))

    def readable(self, split: Split) -> Table:
        table = super().readable(split)
        return table if self.strict else _Tolerant(table)


class TableFiles(TextFiles):
    """Base class of sources that read tables, among other files.

    sep:    the character between the cells of a table, such as ";" or "|", or its name, such as "tab"; by default detected.
    quoted: whether the cells of a TSV are quoted as in CSV; by default detected, see `files.csv_dialect`.
    quote:  the mark around cells, as `quotechar` in pandas.
    escape: the mark before such marks within cells, as `escapechar` in pandas, if they are not doubled.
    """

    sep: Separator | None = None
    quoted: bool | None = None
    quote: Mark = '"'
    escape: Mark | None = None

    @property
    def quotes(self) -> Quotes:
        return Quotes(self.quote, self.escape)

    def cells(self, path: Path, form: Form) -> Cells:
        """The rows of a table."""
        return Cells(path, form, self.encoding, self.quoted, self.strict, self.sep, self.quotes)


class FilePerSplit(TextFiles):
    """A text file for training, and optionally one each for validation and test.

    expects: a description of the file, for the error message if `path` is missing.
    """

    expects: ClassVar[str]

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None

    def paths(self, split: Split) -> tuple[Path, ...]:
        path = self.split_setting("path", split)
        if path is None and split == "train":
            raise ValueError(f"no training data: give data.path, {self.expects}")
        return (Path(path).expanduser(),) if path else ()


class NamedRecords(TableFiles, FilePerSplit):
    """Base class of sources that read records by the names of their fields: of JSONL, of a JSON file that is one list, of
    Parquet, or of a CSV or TSV whose first row has the names."""

    def records(self, path: Path, example: Callable[[Any, str], Example | Skipped]) -> Table:
        cells = self._cells(path)
        return super().records(path, example) if cells is None else named_rows(cells, example)

    def notes(self) -> tuple[str, ...]:
        tables = (self._cells(self.paths(split)[0]) for split in SPLITS if self.gives(split))
        columns = [value for value in vars(self).values() if isinstance(value, str)]
        return (*notes_of(tables, True, self.quoted, columns), *super().notes())

    def _cells(self, path: Path) -> Cells | None:
        """The rows of a CSV or TSV; None for another file, and for JSON in spite of its name."""
        suffix = suffix_of(path)
        if not self.sep and (suffix not in (".csv", ".tsv") or holds_json(existing(path), self.encoding)):
            return None
        form: Form = "tsv" if (self.sep or suffix) in (".tsv", "\t") else "csv"
        return self.cells(path, form)


class _Tolerant:
    """A table that skips entries that can't be read."""

    def __init__(self, table: Table) -> None:
        self.table, self.weight = table, weight_of(table)
        self._warnings = 0

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        try:
            return self.table[i]
        except ValueError as error:
            if self._warnings < _MOST_WARNINGS:
                more = "" if self._warnings + 1 < _MOST_WARNINGS else "; further ones are only counted"
                warnings.warn(f"skipped: {error}{more}", stacklevel=2)
            self._warnings += 1
            return Skipped("damaged")
