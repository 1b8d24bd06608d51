"""Files with a record a row: CSV, TSV, JSON lines, or lines that are a label and a text. They are held in memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ..core.spec import nearest
from .files import open_bytes
from .pairs import json_value
from .sources import Skipped

Column = int | str
Format = Literal["csv", "tsv", "jsonl", "lines"]
Encoding = Literal["utf-8", "latin-1"]

_FORMATS: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class Records:
    """The records of a file by number.

    names: the columns of a file that begins with them.
    rows:  the line that each begins in, and its cells; of JSON the object.
    """

    path: Path
    names: tuple[str, ...]
    rows: tuple[tuple[int, Any], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> str:
        return f"{str(self.path)!r}, line {self.rows[i][0]:,}"

    def get(self, i: int, column: Column) -> Any:
        """What stands in a column, numbered or named (of JSON dotted where it is nested); None where nothing does."""
        row = self.rows[i][1]
        if isinstance(row, dict):
            return json_value(row, str(column))
        place = self.names.index(column) if isinstance(column, str) else column
        return row[place] if place < len(row) else None

    def text(self, i: int, column: Column) -> str | Skipped:
        """The text in a column, without space around it; or why there is none."""
        found = self.get(i, column)
        if not isinstance(found, str):
            return Skipped(f"without a text in {column!r}")
        return found.strip() or Skipped(f"with an empty {column!r}")


def opened(path: Path, columns: tuple[Column, ...], format: Format | None, encoding: Encoding) -> Records:
    """The records of a file, which begins with a line of names where the columns are named.

    Raises ValueError naming file and line where it is not of its format or encoding, or has no such column.
    """
    path = path.expanduser()
    chosen = format or _FORMATS.get(Path(path.name.removesuffix(".gz")).suffix, "lines")
    open_bytes(path)  # says what is wrong with the file
    stat = path.stat()
    named = chosen in ("csv", "tsv") and any(isinstance(column, str) for column in columns)
    found = _read(path.resolve(), stat.st_size, stat.st_mtime_ns, chosen, encoding, named)
    for column in columns if chosen != "jsonl" else ():
        if isinstance(column, str) and column not in found.names:
            raise ValueError(f"{str(path)!r} has no column {column!r}; {nearest(column, found.names)}")
        if isinstance(column, int) and found.rows and column >= len(found.rows[0][1]):
            raise ValueError(
                f"{str(path)!r} has no column {column}: its first line has {len(found.rows[0][1])}, numbered from 0"
            )
    return found


@lru_cache(maxsize=8)
def _read(path: Path, size: int, mtime_ns: int, format: Format, encoding: Encoding, named: bool) -> Records:
    try:
        text = bytes(open_bytes(path)).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{str(path)!r}, line {line:,}, is not valid UTF-8; give encoding=latin-1 if that is what it is in"
        ) from None
    rows = list({"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "lines": _labels}[format](text, path))
    if format == "lines":
        return Records(path, ("label", "text"), tuple(rows))
    names = tuple(cell.strip() for cell in rows.pop(0)[1]) if named and rows else ()
    return Records(path, names, tuple(rows))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with something in them, by their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _csv(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{str(path)!r}, line {begins:,}, is not valid CSV: {error}") from None
        if row is None:
            return
        if row:
            yield begins, row
        begins = reader.line_num + 1


def _tsv(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in _lines(text))


def _jsonl(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(text):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{str(path)!r}, line {number:,}, is not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{str(path)!r}, line {number:,}, is no JSON object but {line.strip()[:40]!r}")
        yield number, record


def _labels(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in _lines(text):
        label, *rest = line.split(None, 1)
        yield number, [label, *rest]
