"""The rows of a quoted table: where each begins, which are invalid, and which marks quote its cells."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .cache import Stamp
from .csv_dialect import OTHERS, Quotes, reader_of
from .lines import Lines

_AGAIN = 8  # times that the lines of a file are reread after an unterminated quotation
LISTED = 5  # rows with too many cells whose lines are named
INSPECTED = 1000  # rows inspected to find the number of cells, the header and the quotes

Widths = dict[int, tuple[list[int], int]]
"""By number of cells, without empty ones at the end of a row: the first rows that have it, and how many do."""


def filled(row: Sequence[str]) -> int:
    """The number of cells of a row without empty ones at its end."""
    size = len(row)
    while size and not row[size - 1].strip():
        size -= 1
    return size


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
def starts_of(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, quotes: Quotes
) -> tuple[NDArray[np.int64], dict[int, str], Widths]:
    """The line at which each row begins, followed by the number of lines; unless strict, the errors of invalid rows; and the
    numbers of cells. Reading continues after the line in which a row turns out to be invalid."""
    lines = Lines(path, encoding, strict)
    feed = _Feed(lines)
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
    reader = reader_of(_Feed(Lines(path, encoding, strict), begin, stop), delimiter, quotes)
    rows: list[tuple[str, ...]] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            row = []
        if row is None:
            return tuple(rows)
        rows.append(tuple(row))
