"""Records from CSV, TSV and JSON Lines files, or from lines of a label and a text; held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ...core.spec import nearest
from ..source import Skipped
from .cache import Stamp, stamp_of
from .compressed import bare_name, existing
from .csv_header import short
from .csv_tsv import Cells
from .json_lines import json_object, json_value
from .lines import Lines

Column = int | str
Format = Literal["csv", "tsv", "jsonl", "lines"]

_FORMATS: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class Records:
    """The records of a file.

    names: the column names, if the file has a header.
    rows:  for each record its line number, and its cells, its JSON object, or the error if it can't be read.
    """

    path: Path
    names: tuple[str, ...]
    rows: tuple[tuple[int, Any], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> str:
        return f"{str(self.path)!r}, line {self.rows[i][0]:,}"

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
        found = self.get(i, column)
        if not isinstance(found, str):
            return Skipped(f"without a text in {column!r}")
        return found.strip() or Skipped(f"with an empty {column!r}")


@dataclass(frozen=True)
class RecordFormat:
    """How a file is read: its format (by default from its name), encoding, whether it has a header and quoted cells (by
    default detected), and whether bad records are errors."""

    format: Format | None = None
    encoding: str = "utf-8"
    header: bool | None = None
    quoted: bool | None = None
    strict: bool = True

    def form(self, path: Path) -> Format:
        return self.format or _FORMATS.get(Path(bare_name(path)).suffix, "lines")

    def notes(self, path: Path, columns: Iterable[Column]) -> tuple[str, ...]:
        """What was guessed of a file."""
        form = self.form(path)
        if form not in ("csv", "tsv"):
            return ()
        named = any(isinstance(column, str) for column in columns)
        cells = Cells(path, form, self.encoding, self.quoted, self.strict)
        return tuple(cells.notes(True if named else self.header, self.quoted))


def open_records(path: Path, columns: tuple[Column, ...], how: RecordFormat) -> Records:
    """The records of a file, which must have a header if columns are given by name.

    Raises ValueError that names file and line if the format, encoding or a column is wrong.
    """
    path = existing(path)
    named = how.form(path) in ("csv", "tsv") and any(isinstance(column, str) for column in columns)
    if named and how.header is False:
        raise ValueError(f"data.header=false says that {str(path)!r} has no names; number its columns from 0")
    found = _read(path.resolve(), stamp_of(path), replace(how, header=True) if named else how)
    for column in columns if how.form(path) != "jsonl" else ():
        if isinstance(column, str) and column not in found.names:
            raise ValueError(f"{str(path)!r} has no column {column!r}; {nearest(column, short(found.names))}")
        if isinstance(column, int) and found.rows and column >= (width := len(found.names or found.rows[0][1])):
            raise ValueError(f"{str(path)!r} has no column {column}: its first line has {width}, numbered from 0")
    return found


@lru_cache(maxsize=8)
def _read(path: Path, stamp: Stamp, how: RecordFormat) -> Records:
    form = how.form(path)
    if form in ("csv", "tsv"):
        cells = Cells(path, form, how.encoding, how.quoted, how.strict)
        names = cells.names(how.header)
        rows = _rows(cells.__getitem__, range(bool(names), len(cells)), cells.line, how.strict)
        return Records(path, names, tuple(rows))
    lines = Lines(path, how.encoding, how.strict)

    def row(i: int) -> Any:
        line = lines[i].strip()
        return line and (_object(line, f"{str(path)!r}, line {i + 1:,},") if form == "jsonl" else line.split(None, 1))

    rows = _rows(row, range(len(lines)), lambda i: i + 1, how.strict)
    return Records(path, () if form == "jsonl" else ("label", "text"), tuple(rows))


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
        raise ValueError(f"{where} is no JSON object but {line[:40]!r}")
    return record
