"""How the cells of a table are separated and quoted: as settings, as a file declares it, and as its lines show it; and
where the rows of a quoted table begin.

Whether a TSV file is quoted is detected. Excel, pandas and Python's `csv` quote every cell that contains a quotation
mark and double that mark; an unquoted corpus has such marks anywhere. A file therefore counts as quoted if it parses
strictly as such, no unquoted cell has a quotation mark, and some cell needed its quotes. A cell needs them for a
doubled mark, a tab or a line end. Quotes around all cells count too, and, as in Excel's files, quotes around a comma if
no unquoted cell has one.
"""

from __future__ import annotations

import csv
import io
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from ...core.spec import brief
from .cache import Stamp
from .csv_header import kind_of
from .lines import LONGEST, Lines

if TYPE_CHECKING:
    from _csv import Reader

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
BEGINNING = 50  # lines inspected to find the separator
_SNIFFED = 200_000  # lines inspected to detect quoting
_AGAIN = 8  # times that the lines of a file are reread after an unterminated quotation
LISTED = 5  # rows with too many cells whose lines are named
INSPECTED = 1000  # rows inspected to find the number of cells, the header and the quotes

Widths = dict[int, tuple[list[int], int]]
"""By number of cells, without empty ones at the end of a row: the first rows that have it, and how many do."""


def _one_character(name: str) -> str:
    separator = SEPARATORS.get(name, name)
    if len(separator) != 1 or separator in '"\r\n.' or separator.isalnum():
        names = ", ".join(name for name in SEPARATORS if name.isalpha())
        raise ValueError(
            f"a separator of cells is one character, such as ';', or its name ({names}), not {brief(name)}"
        )
    return separator


Separator = Annotated[str, AfterValidator(_one_character)]
"""The character between the cells of a row, or its name."""


def _mark(character: str) -> str:
    if len(character) != 1 or character.isalnum() or character.isspace():
        raise ValueError(f"a quotation mark or an escape is one character, such as ' or \\, not {brief(character)}")
    return character


Mark = Annotated[str, AfterValidator(_mark)]
"""A quotation mark around cells, or a character that escapes one."""


class Quotes(NamedTuple):
    """The `quote` around cells, and the `escape` before quotes within cells, if they are not doubled."""

    quote: str = '"'
    escape: str | None = None

    def settings(self) -> tuple[str, ...]:
        """The settings of the data that differ from the usual ones, as for a shell without its own quotes."""
        quote = () if self.quote == '"' else (f"data.quote={json.dumps(self.quote)}",)
        return quote if self.escape is None else (*quote, f"data.escape={json.dumps(self.escape)}")

    def __str__(self) -> str:
        inside = "" if self.escape is None else f", with {self.escape} before such marks within them"
        return f"quoted by {self.quote}{inside}"


USUAL = Quotes()
OTHERS = (Quotes('"', "\\"), Quotes("'"), Quotes("'", "\\"))


def detected_separator(text: str) -> str:
    """The separator of a CSV, by its first lines: the one that divides the most of them into equally many cells; of several
    that do, the one with the most numbers, since locales with a decimal comma use semicolons."""
    lines = [line for line in re.split(r"[\r\n]+", text)[:BEGINNING] if line.strip()]
    return max(",;\t|", key=partial(fit, lines)) if lines else ","


def fit(lines: list[str], separator: str) -> tuple[float, float]:
    """The share of lines with the most common number of cells, if that is not one; and the share of cells with numbers."""
    with suppress(csv.Error):
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        numbers = sum(kind_of(cell.strip()) == "number" for row in rows for cell in row)
        return (count / len(rows), numbers / sum(map(len, rows))) if width > 1 else (0.0, 0.0)
    return 0.0, 0.0


def named(separator: str) -> str:
    """The name of a separator, in the plural."""
    names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes", " ": "spaces"}
    return names.get(separator, repr(separator))


def declared(lines: Lines) -> str | None:
    """Return the separator that a first line such as `sep=;` declares, which Excel writes and reads."""
    match = re.fullmatch(r'"?sep=([^\w"])"?\s*', lines[0], re.IGNORECASE) if len(lines) else None
    return match and match[1]


def reader_of(lines: Iterator[str], delimiter: str, quotes: Quotes = USUAL) -> Reader:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    quote, escape = quotes
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=True)


_RETURN = "\udc0d"  # stands for a carriage return within a cell, which `csv` would refuse; no valid text holds it


def with_returns(line: str) -> str:
    """Return the line with the carriage returns within it replaced, which `csv` would refuse. `restored` undoes this."""
    return re.sub(r"\r(?=.)", _RETURN, line) if "\r" in line else line


def restored(row: list[str]) -> list[str]:
    """Return the cells with the carriage returns that `with_returns` replaced."""
    return [cell.replace(_RETURN, "\r") for cell in row]


def _text(lines: Lines, begin: int, stop: int) -> Iterator[str]:
    return (f"{with_returns(lines[i])}\n" for i in range(begin, stop))


def written(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> str:
    """Return rows as CSV. Unlike `csv`, quote cells with a carriage return; readers would end a row there."""
    lines = []
    for row in rows:
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, lineterminator="\r\n").writerow(row)
        lines.append(file.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


# -- quoted or not --------------------------------------------------------------------------------------------------


def marked(lines: Lines) -> int | None:
    """Return the first line in which a cell begins with a quotation mark; None if there is none."""
    return lines.first(b'"', b'\t"')


@lru_cache(maxsize=64)
def looks_quoted(path: Path, stamp: Stamp, encoding: str, strict: bool) -> bool:
    lines = Lines(path, encoding, strict)
    begin = marked(lines)
    if begin is None:
        return False
    comma = lines.first(b",", b",")
    first = next((line for line in map(lines.__getitem__, range(begin)) if line.strip()), None)
    width, at = len(first.split("\t")) if first else 0, begin
    seen = Counter({"bare": begin if first else 0, "bare comma": int(comma is not None and comma < begin)})
    stop = min(len(lines), begin + _SNIFFED)
    reader = reader_of(_text(lines, begin, stop), "\t")
    try:
        for row in reader:
            text = lines.text(at, begin + reader.line_num)
            at = begin + reader.line_num
            if not row:  # an empty line
                continue
            width = width or len(row)
            if not _judged(text, row, width, seen):
                return False
    except csv.Error:
        if stop == len(lines) or begin + reader.line_num < stop:  # else a cell continues beyond the inspected lines
            return False
    if seen["needed"] > seen["ambiguous"] or not seen["bare"]:
        return True
    if width == 1 and seen["needed"]:  # the number of cells can't show whether several lines are one row
        return True
    if seen["ambiguous"]:
        return False
    return bool(seen["comma"]) and not seen["bare comma"] and not seen["idle"]


def _judged(text: str, row: list[str], width: int, seen: Counter[str]) -> bool:
    """Count evidence for quoting in a row; False if the row can't be quoted."""
    lines = text.split("\n")
    cells = lines[0].split("\t")
    if len(lines) > 1:  # a quoted line end, or rows that are not quoted, each a line
        seen["ambiguous" if all(len(line.split("\t")) == width for line in lines) else "needed"] += 1
        return True
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


# -- the rows of a quoted table -----------------------------------------------------------------------------------


def filled(row: Sequence[str]) -> int:
    """The number of cells of a row without empty ones at its end."""
    size = len(row)
    while size and not row[size - 1].strip():
        size -= 1
    return size


class _Feed:
    """Lines for `csv`, broken at lone carriage returns too if these end rows: if most rows of the file end so, as on old
    Macs, or if they divide a line into equally many cells. Others are part of a cell.

    line:  how many lines have been read.
    whole: whether the last of them was given to its end.
    """

    def __init__(self, lines: Lines, delimiter: str, quotes: Quotes, line: int = 0, stop: int | None = None) -> None:
        self._lines, self.line, self._stop = lines, line, len(lines) if stop is None else stop
        self._delimiter, self._quotes = delimiter, quotes
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
            pieces = io.StringIO(text, newline="").readlines()
            if not self._are_rows(pieces) and not self._of_old_macs:
                return with_returns(text)
            self._rest = pieces[::-1]
        piece = self._rest.pop()
        self.whole = not self._rest
        return piece

    def _are_rows(self, pieces: list[str]) -> bool:
        """Whether the pieces of a line between carriage returns are rows of equally many cells."""
        with suppress(csv.Error):
            return len({len(row) for row in reader_of(iter(pieces), self._delimiter, self._quotes) if row}) == 1
        return False

    @cached_property
    def _of_old_macs(self) -> bool:
        """Whether the beginning of the file has as many lone carriage returns as lines, or more."""
        count = min(len(self._lines), INSPECTED)
        return sum(self._lines[i].count("\r") for i in range(count)) >= count


@lru_cache(maxsize=64)
def starts_of(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, quotes: Quotes
) -> tuple[NDArray[np.int64], dict[int, str], Widths]:
    """Return the first line of each row (and, at the end, the number of lines), the errors of invalid rows, and the numbers
    of cells. Strict reading raises the first error. Otherwise reading continues after the line that shows the error."""
    lines = Lines(path, encoding, strict)
    feed = _Feed(lines, delimiter, quotes)
    reader = reader_of(feed, delimiter, quotes)
    starts, wrong, widths = array("q", [0]), dict[int, str](), dict[int, tuple[list[int], int]]()
    again = 0
    while True:
        begin = starts[-1]
        try:
            row = next(reader, None)
            if row is None:
                break
            rows, count = widths.get(size := filled(row), ([], 0))
            widths[size] = (rows if count >= LISTED else [*rows, len(starts) - 1]), count + 1
        except (csv.Error, ValueError) as error:
            stop = begin + 1 if strict else feed.line  # skip all lines up to where the error shows
            message = str(error) if isinstance(error, ValueError) else _invalid(path, begin, stop, delimiter, error)
            if strict:
                raise ValueError(message) from None
            ended = isinstance(error, csv.Error) and feed.line == len(lines) and feed.whole and "end of data" in message
            again += ended and feed.line - begin
            if ended and again <= _AGAIN * len(lines):  # skip only the line with the unterminated quotation
                feed.line = begin + 1
                reader = reader_of(feed, delimiter, quotes)
                message = _invalid(path, begin, begin + 1, delimiter, error)
            wrong[len(starts) - 1] = message
        starts.append(feed.line if feed.whole else begin)
    return np.frombuffer(starts, np.int64), wrong, widths


def _invalid(path: Path, begin: int, stop: int, delimiter: str, error: Exception) -> str:
    what = "CSV" if delimiter != "\t" else "TSV with quoted cells (data.quoted=false reads quotation marks as text)"
    to = f" to {stop:,}" if stop > begin + 1 else ""
    return f"{str(path)!r}, line {begin + 1:,}{to}, is not valid {what}: {error}"


@lru_cache(maxsize=64)
def other_quotes(path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, faulty: bool) -> Quotes | None:
    """Quotes that occur in a file and with which all of its rows are valid and none has more cells than most and the first.
    If the file is not `faulty` with the usual quotes, only escaped marks show others."""
    lines = Lines(path, encoding, False)
    sample = [lines[i] for i in range(min(len(lines), INSPECTED))]
    for quotes in OTHERS if faulty else [quotes for quotes in OTHERS if quotes.escape]:
        mark = quotes.quote
        shown = [line for line in sample if quotes.escape is None or quotes.escape + mark in line]
        if mark == "'":
            around = re.compile(rf"(^|{re.escape(delimiter)}){mark}.*{mark}({re.escape(delimiter)}|$)")
            shown = [line for line in shown if around.search(line)]
        if len(shown) < min(2, len(sample)):
            continue
        _, wrong, widths = starts_of(path, stamp, encoding, False, delimiter, quotes)
        most = max(widths, key=lambda size: widths[size][1])
        if not wrong and most == max(widths) > 1 and 0 in widths[most][0]:
            return quotes
    return None


@lru_cache(maxsize=4)
def rows_of_one_line(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, quotes: Quotes, begin: int, stop: int
) -> tuple[tuple[str, ...], ...]:
    """The rows that begin in one line; invalid ones are empty."""
    reader = reader_of(_Feed(Lines(path, encoding, strict), delimiter, quotes, begin, stop), delimiter, quotes)
    rows: list[tuple[str, ...]] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            row = []
        if row is None:
            return tuple(rows)
        rows.append(tuple(restored(row)))
