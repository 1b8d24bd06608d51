"""Records from CSV, TSV, JSON Lines, JSON and Parquet files, or from lines with a label and a text, read into memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from ...core.spec import brief, nearest
from ..classes import missing_label
from ..source import SPLIT_NAMES, SPLITS, Example, Skipped, Split, Table
from ..tables import ComputedTable
from .cache import Stamp, stamp_of
from .compressed import existing, suffix_of
from .csv_dialect import USUAL, Quotes
from .csv_header import check_names, short
from .csv_tsv import Cells, Form, no_record, notes_of
from .encodings import open_text
from .json_lines import holds_json, json_entries, json_object, json_value
from .lines import Lines
from .memory_bound import ROWS, check_fits
from .parquet import SUFFIX, ParquetRows
from .text_files import FilePerSplit, TableFiles

Column = int | str
NamedFormat = Literal["csv", "tsv", "jsonl", "parquet"]
Format = Literal["csv", "tsv", "jsonl", "parquet", "lines"]

_FASTTEXT = "__label__"  # before each label of a line in fastText's format
_FIRST = 20  # rows among which the one with column names is sought for messages
FORMATS: dict[str, NamedFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # one list of records
    SUFFIX: "parquet",
}


@dataclass(frozen=True)
class Records:
    """The records of a file.

    names: the column names, if the file has a header.
    rows:  for each record its line number (in Parquet, that of its row), and its cells, its JSON object, the error if it
           is invalid, or the reason to skip it.
    """

    path: Path
    names: tuple[str, ...]
    rows: Sequence[tuple[int, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> str:
        unit = "row" if isinstance(self.rows, _NumberedRows) else "entry" if isinstance(self.rows, _Entries) else "line"
        return f"{str(self.path)!r}, {unit} {self.rows[i][0]:,}"

    def get(self, i: int, column: Column) -> Any:
        """The value in a column, by number or name (a dotted path in JSON); None if there is none."""
        row = self.rows[i][1]
        if isinstance(row, ValueError):
            raise row
        if isinstance(row, dict):
            return json_value(row, str(column))
        place = self.names.index(column) if isinstance(column, str) else column
        return row[place] if place < len(row) else None

    def text(self, i: int, column: Column) -> str | Skipped:
        """The stripped text in a column, or the reason to skip the record."""
        value = self.get(i, column)
        if not isinstance(value, str):
            return Skipped(f"without a text in {column!r}")
        return value.strip() or Skipped(f"with an empty {column!r}")


@dataclass(frozen=True)
class RecordFormat:
    """How a file is read. By default, the format follows from the file's name, and header, quoted cells and the
    separator are detected. `on_error` says whether bad records are errors, `missing` which texts stand for a
    missing label, and `quotes` which marks are around cells."""

    format: Format | None = None
    encoding: str = "utf-8"
    header: bool | None = None
    quoted: bool | None = None
    strict: bool = True
    sep: str | None = None
    missing: tuple[str, ...] | None = None
    quotes: Quotes = USUAL

    def form(self, path: Path) -> Format:
        other: Format = "csv" if self.sep else "lines"
        return self.format or FORMATS.get(suffix_of(path)) or other

    def cells(self, path: Path, form: Form) -> Cells:
        """The rows of a CSV or TSV file."""
        return Cells(path, form, self.encoding, self.quoted, self.strict, self.sep, self.quotes)

    def table(self, path: Path) -> Cells | None:
        """The rows of a file; None if it is in another format."""
        form = self.form(path)
        return self.cells(path, form) if form == "csv" or form == "tsv" else None


def open_records(path: Path, columns: tuple[Column, ...], how: RecordFormat) -> Records:
    """The records of a file, which must have a header if columns are given by name.

    Raises ValueError that names file and line if the format, encoding or a column is wrong.
    """
    path = existing(path)
    named = how.form(path) in ("csv", "tsv") and any(isinstance(column, str) for column in columns)
    if named and how.header is False:
        raise ValueError(f"data.header=false says that {brief(path)} has no names; number its columns from 0")
    records = _read(path.resolve(), stamp_of(path), replace(how, header=True) if named else how)
    for column in columns if how.form(path) not in ("jsonl", "parquet") else ():
        if isinstance(column, str) and (found := records.names.count(column)) != 1:
            raise ValueError(_why_no_column(path, column, records.names, found, how))
        if isinstance(column, int) and column >= (width := _width(records, how)):
            raise ValueError(f"{brief(path)} has no column {column}: it has {width}, numbered from 0")
    return records


def _width(records: Records, how: RecordFormat) -> int:
    """The number of columns."""
    cells = how.table(records.path)
    return len(records.names) if cells is None else cells.columns(records.names)


def _why_no_column(path: Path, column: str, names: Sequence[str], found: int, how: RecordFormat) -> str:
    if found:
        return f"{str(path)!r} has {found} columns {column!r}; rename one, or number the columns from 0"
    cells, why = how.table(path), f"{str(path)!r} has no column {column!r}"
    if how.form(path) == "lines":
        return f"{why}: by its name it is no table, and is read as lines of a label and a text; data.format says what it is"
    if cells is not None and holds_json(path, how.encoding):
        return f"{why}: it holds JSON, which data.format=jsonl reads"
    if cells is not None and (line := _line_with(cells, column)):
        return f"{why}; line {line:,} has it: remove the lines above"
    if cells is not None and how.header is None and not cells.heading.names:
        return f"{why}; its first line looks like data: give it a line of names, or number the columns from 0"
    return f"{why}; {nearest(column, short(names))}"


def _line_with(cells: Cells, column: str) -> int | None:
    """The line of the first rows that has a cell with the name of a column."""
    rows = ((i, row) for i, row in enumerate(cells.some(0, min(len(cells), _FIRST))) if column in map(str.strip, row))
    return next((cells.line(i) for i, row in rows if len(row) > 1), None)


class RecordFiles(TableFiles, FilePerSplit):
    """Base class of sources that read records, one file per split.

    format: the file format, if the name of the file doesn't show it.
    header: whether the first line of a table holds column names; by default detected.
    missing: texts that stand for no label; by default as in pandas, such as "nan", "NA" and "None".
    split: the column that tells the split of each row of `path`: train, validation, test or another usual name.
    """

    format: Format | None = None
    header: bool | None = None
    missing: tuple[str, ...] | None = None
    split: Column | None = None

    @abstractmethod
    def record_columns(self) -> tuple[Column, ...]:
        """The columns that are read."""

    @abstractmethod
    def example(self, records: Records, i: int) -> Example | Skipped:
        """The example of record i."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        columns = self._columns
        if self.split is not None and (self.validation_path or self.test_path):
            raise ValueError(
                "the column `split` tells the split of each row, so validation_path and test_path can't be given beside it; "
                "leave these out, or ignore the column with split=null"
            )
        if len({type(column) for column in columns}) > 1:
            raise ValueError(f"columns are all named or all numbered, not {', '.join(map(repr, columns))}")
        if any(isinstance(column, int) and column < 0 for column in columns):
            raise ValueError("columns are numbered from 0")
        return self

    @property
    def _columns(self) -> tuple[Column, ...]:
        return (*self.record_columns(), *(() if self.split is None else (self.split,)))

    def gives(self, split: Split) -> bool:
        return super().gives(split) or (self.split is not None and split in _by_split(self, self.stamp()))

    @property
    def reading(self) -> RecordFormat:
        """How the files are read."""
        how = RecordFormat(self.format, self.encoding, self.header, self.quoted, self.strict, self.sep, self.missing)
        return replace(how, quotes=self.quotes)

    def truth(self, records: Records, i: int, column: Column) -> Any | Skipped:
        """The label, score or answer in a column; or why the record is skipped: it has none."""
        value = records.get(i, column)
        value = value.strip() if isinstance(value, str) else value
        return missing_label(value, column, self.missing) or value

    def notes(self) -> tuple[str, ...]:
        columns = self._columns
        named = any(isinstance(column, str) for column in columns)
        tables = (self.reading.table(path) for split in SPLITS for path in self.paths(split)[:1])
        return (*notes_of(tables, True if named else self.header, self.quoted, columns), *super().notes())

    def records_of(self, split: Split) -> Records:
        """Read the file of a split."""
        return open_records(self.paths(split)[0], self._columns, self.reading)

    def open(self, split: Split) -> Table:
        first = self.records_of("train")
        if self.split is not None:
            rows = _by_split(self, self.stamp())[split]
            return ComputedTable(len(rows), lambda i: self._entry(first, rows[i]))
        records = first if split == "train" else self.records_of(split)
        numbers = [column for column in self._columns if isinstance(column, int)]
        check_names(records.path, records.names, first.path, first.names, numbers)
        return ComputedTable(len(records), lambda i: self._entry(records, i))

    def _entry(self, records: Records, i: int) -> Example | Skipped:
        row = records.rows[i][1]
        return Skipped(row, records.where(i)) if isinstance(row, Skipped) else self.example(records, i)


@lru_cache(maxsize=8)
def _by_split(source: RecordFiles, stamp: Hashable) -> dict[Split, list[int]]:
    """Return the indices of the records of each split, by the column `split`. The stamp invalidates the cache."""
    assert source.split is not None
    records, found = source.records_of("train"), dict[Split, list[int]]()
    for i, (_, row) in enumerate(records.rows):
        split: Split = "train"  # what can't be read is told in training
        if not isinstance(row, Skipped | ValueError):
            cell = records.get(i, source.split)
            name = str(cell).strip().lower()
            if name not in SPLIT_NAMES:
                raise ValueError(
                    f"{records.where(i)}: {brief(source.split)} is {brief(cell)}, which names no split; write train, "
                    "validation or test, or leave data.split out"
                )
            split = SPLIT_NAMES[name]
        found.setdefault(split, []).append(i)
    if "train" not in found:
        raise ValueError(
            f"{brief(records.path)} has no row whose {brief(source.split)} is 'train'; leave data.split out"
        )
    return found


@lru_cache(maxsize=8)
def _read(path: Path, stamp: Stamp, how: RecordFormat) -> Records:
    form = how.form(path)
    if form == "parquet":
        return Records(path, (), _NumberedRows(ParquetRows(path)))
    if form == "jsonl" and (entries := json_entries(path)) is not None:
        rows = _rows(lambda i: _record(entries[i], path, i), range(len(entries)), lambda i: i + 1, how.strict)
        return Records(path, (), _Entries(rows))
    check_fits(path, len(open_text(path, how.encoding)), ROWS, "use fewer rows, or a machine with more memory")
    if form in ("csv", "tsv"):
        cells = how.cells(path, form)
        names = cells.names(how.header)
        if how.strict:
            cells.check_width(names)
        width = cells.columns(names)

        def cells_of(i: int) -> Any:
            row = cells[i]
            return row and (no_record(row, names, width) or row)

        rows = _rows(cells_of, range(bool(names), len(cells)), cells.line, how.strict)
        return Records(path, names, tuple(rows))
    lines = Lines(path, how.encoding, how.strict)

    def row(i: int) -> Any:
        line = lines[i].strip()
        return line and (_object(line, f"{lines.where(i)},") if form == "jsonl" else _labelled(line))

    rows = _rows(row, range(len(lines)), lambda i: i + 1, how.strict)
    return Records(path, () if form == "jsonl" else ("label", "text"), tuple(rows))


def _labelled(line: str) -> list[str] | Skipped:
    """The label and the text of a line, or why it is skipped: fastText's format allows several labels."""
    cells = line.split(None, 1)
    several = len(cells) > 1 and all(cell.startswith(_FASTTEXT) for cell in cells)
    return Skipped(f"with several labels ({_FASTTEXT}…)") if several else cells


class _Entries(tuple[tuple[int, Any], ...]):
    """The entries of a JSON file that is one list, with their numbers from 1."""


def _record(entry: Any, path: Path, i: int) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{brief(path)}, entry {i + 1:,} is not a JSON object but {brief(entry)}")
    return entry


class _NumberedRows(Sequence[tuple[int, Any]]):
    """The rows of a Parquet file with their numbers from 1, read when they are used."""

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        self._last: tuple[int, dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        last = self._last
        if last is None or last[0] != i + 1:  # an example reads its row several times
            self._last = last = (i + 1, self._rows[i])
        return last


def _rows(
    read: Callable[[int], Any], places: range, line: Callable[[int], int], strict: bool
) -> Iterator[tuple[int, Any]]:
    """The rows with their line numbers; unless strict, an error takes the place of a row that can't be read."""
    for i in places:
        try:
            row = read(i)
        except ValueError as error:
            if strict:
                raise
            row = error
        if row:
            yield line(i), row


def _object(line: str, where: str) -> dict[str, Any]:
    record = json_object(line, where)
    if not isinstance(record, dict):
        raise ValueError(f"{where} is not a JSON object but {line[:40]!r}")
    return record
