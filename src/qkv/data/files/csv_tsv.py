"""CSV and TSV reader with random access to rows, for files of any size; TSV cells may be quoted as in CSV or not.

Whether a TSV file is quoted is detected. Excel, pandas and Python's `csv` quote every cell that contains a quotation
mark and double that mark; an unquoted corpus has such marks anywhere. A file therefore counts as quoted if it parses
strictly as such, no unquoted cell has a quotation mark, and some quoted cell needed quoting: for a doubled mark, a tab
or a line end, because all cells are quoted, or, as Excel does, for a comma if no unquoted cell has one.
"""

from __future__ import annotations

import contextlib
import csv
import io
from array import array
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from .cache import Stamp, stamp_of
from .csv_header import is_heading, short
from .lines import LONGEST, Lines

Form = Literal["csv", "tsv"]
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}


def _one_character(name: str) -> str:
    separator = SEPARATORS.get(name, name)
    if len(separator) != 1 or separator in '"\r\n.' or separator.isalnum():
        names = ", ".join(name for name in SEPARATORS if name.isalpha())
        raise ValueError(f"a separator of cells is one character, such as ';', or its name ({names}), not {name!r}")
    return separator


Separator = Annotated[str, AfterValidator(_one_character)]
"""The character between the cells of a row, or its name."""
_SNIFFED = 200_000  # lines inspected to detect quoting
_AGAIN = 8  # times that the lines of a file are reread after an unterminated quotation
_WIDE = 1000  # rows inspected to find the number of cells


class Cells:
    """The rows of a file. A row is a line, or several if a quoted cell contains line ends.

    Raises ValueError that names the line of an invalid row in a quoted file; with `strict=False` only when that row is
    read. Rows of quoted files may end with a lone carriage return, as on old Macs.
    """

    def __init__(
        self,
        path: Path,
        form: Form,
        encoding: str,
        quoted: bool | None = None,
        strict: bool = True,
        sep: str | None = None,
    ) -> None:
        self.path, self._strict = path, strict
        form = "csv" if sep not in (None, "\t") else form
        self._lines = Lines(path, encoding, strict)
        at = path.expanduser().resolve(), stamp_of(path.expanduser()), encoding, strict
        self.delimiter = sep or ("\t" if form == "tsv" else detected_separator(self._lines[0].partition("\r")[0]))
        self.marked = form == "tsv" and _marked(self._lines) is not None
        self.quoted = form == "csv" or (_looks_quoted(*at) if quoted is None else quoted)
        self._starts: NDArray[np.int64] | None = None
        self._wrong: dict[int, str] = {}
        if self.quoted:
            self._starts, self._wrong = _starts(*at, self.delimiter)
        self._at = at

    def __len__(self) -> int:
        return len(self._lines) if self._starts is None else len(self._starts) - 1

    def __getitem__(self, i: int) -> list[str]:
        """A row; empty for an empty line."""
        if self._starts is None:
            line = self._lines[i]
            return line.split(self.delimiter) if line.strip() else []
        if i in self._wrong:
            raise ValueError(self._wrong[i])
        begin, stop = int(self._starts[i]), int(self._starts[i + 1])
        first, behind = np.searchsorted(self._starts, begin, "left"), np.searchsorted(self._starts, begin, "right")
        if behind - first > 1:  # rows of one line, between carriage returns
            return list(_of_one_line(*self._at, self.delimiter, begin, int(self._starts[behind]))[i - int(first)])
        text = self._lines.text(begin, stop)
        return next(_reader((f"{line}\n" for line in text.split("\n")), self.delimiter), [])

    def line(self, i: int) -> int:
        """The line, from 1, at which a row begins."""
        return (i if self._starts is None else int(self._starts[i])) + 1

    @property
    def width(self) -> int:
        """The most common number of cells in a row."""
        sizes = Counter[int]()
        for i in range(min(len(self), _WIDE)):
            with contextlib.suppress(*() if self._strict else (ValueError,)):
                sizes[len(self[i])] += 1
        del sizes[0]
        return sizes.most_common(1)[0][0] if sizes else 0

    def names(self, header: bool | None) -> tuple[str, ...]:
        """The column names in the first row, if `header` says that it has them or if its cells look like names."""
        first = [cell.strip() for cell in self[0]]
        return tuple(first) if (is_heading(first) if header is None else header) else ()

    def notes(self, header: bool | None, quoted: bool | None) -> Iterator[str]:
        """Notes on what was detected in the file."""
        name = repr(self.path.name)
        if header is None and (names := self.names(None)):
            yield f"the first line of {name} holds the names {', '.join(short(names))} (data.header=false reads it as data)"
        if quoted is None and self.marked:
            how, other = (
                ("quoted as in CSV", "false") if self.quoted else ("not quoted, their quotation marks text", "true")
            )
            yield f"the cells of {name} are {how} (data.quoted={other} reads them otherwise)"


def detected_separator(first: str) -> str:
    """The separator of a CSV, by its first line: a comma, or a semicolon, which is used in locales with a decimal comma."""
    return ";" if ";" in first and "," not in first else ","


def _reader(lines: Iterator[str], delimiter: str) -> Any:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _text(lines: Lines, begin: int, stop: int) -> Iterator[str]:
    return (f"{lines[i]}\n" for i in range(begin, stop))


class _Feed:
    """Lines for `csv`, broken at lone carriage returns too.

    line:  how many lines have been read.
    whole: whether the last of them was given to its end.
    """

    def __init__(self, lines: Lines, line: int = 0, stop: int | None = None) -> None:
        self._lines, self.line, self._stop = lines, line, len(lines) if stop is None else stop
        self._rest: list[str] = []
        self.whole = True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._rest:
            if self.line == self._stop:
                raise StopIteration
            self.line += 1
            self.whole = True
            text = f"{self._lines[self.line - 1]}\n"
            if "\r" not in text:
                return text
            self._rest = io.StringIO(text, newline="").readlines()[::-1]
        piece = self._rest.pop()
        self.whole = not self._rest
        return piece


@lru_cache(maxsize=64)
def _starts(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str
) -> tuple[NDArray[np.int64], dict[int, str]]:
    """The line at which each row begins, followed by the number of lines; and, unless strict, the errors of invalid rows.
    Reading continues after the line in which a row turns out to be invalid."""
    lines = Lines(path, encoding, strict)
    feed = _Feed(lines)
    reader = _reader(feed, delimiter)
    starts, wrong = array("q", [0]), dict[int, str]()
    again = 0
    while True:
        begin = starts[-1]
        try:
            if next(reader, None) is None:
                break
        except (csv.Error, ValueError) as error:
            stop = begin + 1 if strict else feed.line  # skip all lines up to where the error shows
            message = str(error) if isinstance(error, ValueError) else _invalid(path, begin, stop, delimiter, error)
            if strict:
                raise ValueError(message) from None
            ended = isinstance(error, csv.Error) and feed.line == len(lines) and feed.whole and "end of data" in message
            again += ended and feed.line - begin
            if ended and again <= _AGAIN * len(lines):  # skip only the line with the unterminated quotation
                feed.line = begin + 1
                reader = _reader(feed, delimiter)
                message = _invalid(path, begin, begin + 1, delimiter, error)
            wrong[len(starts) - 1] = message
        starts.append(feed.line if feed.whole else begin)
    return np.frombuffer(starts, np.int64), wrong


def _invalid(path: Path, begin: int, stop: int, delimiter: str, error: Exception) -> str:
    what = "CSV" if delimiter != "\t" else "TSV with quoted cells (data.quoted=false reads quotation marks as text)"
    to = f" to {stop:,}" if stop > begin + 1 else ""
    return f"{str(path)!r}, line {begin + 1:,}{to}, is not valid {what}: {error}"


@lru_cache(maxsize=4)
def _of_one_line(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, begin: int, stop: int
) -> tuple[tuple[str, ...], ...]:
    """The rows that begin in one line; invalid ones are empty."""
    reader = _reader(_Feed(Lines(path, encoding, strict), begin, stop), delimiter)
    rows: list[tuple[str, ...]] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            row = []
        if row is None:
            return tuple(rows)
        rows.append(tuple(row))


# -- quoted or not --------------------------------------------------------------------------------------------------


def _marked(lines: Lines) -> int | None:
    """The first line with a cell that begins with a quotation mark."""
    return lines.first(b'"', b'\t"')


@lru_cache(maxsize=64)
def _looks_quoted(path: Path, stamp: Stamp, encoding: str, strict: bool) -> bool:
    lines = Lines(path, encoding, strict)
    begin = _marked(lines)
    if begin is None:
        return False
    comma = lines.first(b",", b",")
    seen = Counter({"bare": begin, "bare comma": int(comma is not None and comma < begin)})
    width, at = len(lines[0].split("\t")) if begin else 0, begin
    stop = min(len(lines), begin + _SNIFFED)
    reader = _reader(_text(lines, begin, stop), "\t")
    try:
        for row in reader:
            text = lines.text(at, begin + reader.line_num)
            at = begin + reader.line_num
            width = width or len(row)
            if not _judged(text, row, width, seen):
                return False
    except csv.Error:
        if stop == len(lines) or begin + reader.line_num < stop:  # else a cell continues beyond the inspected lines
            return False
    if seen["needed"] or not seen["bare"]:
        return True
    return bool(seen["comma"]) and not seen["bare comma"] and not seen["idle"]


def _judged(text: str, row: list[str], width: int, seen: Counter[str]) -> bool:
    """Count evidence for quoting in a row; False if the row can't be quoted."""
    lines = text.split("\n")
    cells = lines[0].split("\t")
    if len(lines) > 1:  # a quoted line end; not if each line is a row by itself
        seen["needed"] += 1
        return any(len(line.split("\t")) != width for line in lines)
    if len(cells) != len(row):  # a tab in a quoted cell
        seen["needed"] += 1
        return len(cells) != width
    for cell, value in zip(cells, row, strict=True):
        if not cell.startswith('"'):
            if '"' in cell:
                return False
            seen["bare"] += bool(cell) and not cell.isdecimal()
            seen["bare comma"] += "," in cell
        elif '"' in value:
            seen["needed"] += 1
        else:
            seen["comma" if "," in value else "idle"] += 1
    return True
