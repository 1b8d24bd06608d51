"""CSV and TSV reader with random access to rows, for files of any size; TSV cells may be quoted as in CSV or not.

Whether a TSV file is quoted is detected. Excel, pandas and Python's `csv` quote every cell that contains a quotation
mark and double that mark; an unquoted corpus has such marks anywhere. A file therefore counts as quoted if it parses
strictly as such, no unquoted cell has a quotation mark, and some cell needed its quotes. A cell needs them for a
doubled mark, a tab or a line end. Quotes around all cells count too, and, as in Excel's files, quotes around a comma if
no unquoted cell has one.
"""

from __future__ import annotations

import contextlib
import csv
import io
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief, counted
from ..source import Example, Skipped, Table
from ..tables import ComputedTable
from .cache import Stamp, stamp_of
from .csv_header import Heading, heading
from .lines import LONGEST, Lines
from .separators import BEGINNING, declared, detected_separator, named

Form = Literal["csv", "tsv"]
_SNIFFED = 200_000  # lines inspected to detect quoting
_AGAIN = 8  # times that the lines of a file are reread after an unterminated quotation
WIDE = "with more cells than columns"  # the reason to skip a row
_INSPECTED = 1000  # rows inspected to find the number of cells and the header
_ABOVE = 20  # rows above a table, at most
_LISTED = 5  # rows with too many cells whose lines are named
_COMMON = 0.1  # the least share of rows whose number of cells may be that of a table without a header


Widths = dict[int, tuple[list[int], int]]
"""By number of cells, without empty ones at the end of a row: the first rows that have it, and how many do."""


class Cells:
    """The rows of a file. A row is a line, or several if a quoted cell contains line ends. Empty lines at the beginning, and
    Excel's line `sep=;` with the separator, are left out.

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
        self.path, self.strict = path, strict
        form = "csv" if sep not in (None, "\t") else form
        self._lines = Lines(path, encoding, strict)
        at = path.expanduser().resolve(), stamp_of(path.expanduser()), encoding, strict
        self._detected = not sep and form == "csv"
        self.delimiter = sep or ("\t" if form == "tsv" else _separator(*at))
        self.marked = form == "tsv" and _marked(self._lines) is not None
        self.quoted = form == "csv" or (_looks_quoted(*at) if quoted is None else quoted)
        self._starts: NDArray[np.int64] | None = None
        self._wrong: dict[int, str] = {}
        self._widths: Widths = {}
        if self.quoted:
            self._starts, self._wrong, self._widths = _starts(*at, self.delimiter)
        self._at = at
        self._total = len(self._lines) if self._starts is None else len(self._starts) - 1
        self.above: list[int] = []
        self._first = self._table_begins()

    def _leads(self, i: int) -> bool:
        """Whether a row of the file stands above the table: it is an empty line, or declares the separator."""
        with contextlib.suppress(ValueError):
            line = i if self._starts is None else int(self._starts[i])
            blank = not self._row(i) or not self._lines[line].strip()
            return blank or (i == 0 and declared(self._lines) is not None)
        return False

    def _table_begins(self) -> int:
        """The first row of the table. Notes rows `above` it that hold a title or comments: they are passed over only if the
        row that follows is certain to hold column names."""
        first = next((i for i in range(self._total) if not self._leads(i)), self._total)
        begin = first
        while begin < min(self._total, first + _ABOVE) and (self._leads(begin) or self._is_title(begin)):
            begin += 1
        titles = [i for i in range(first, begin) if not self._leads(i)]
        if not titles or begin == self._total:
            return first
        below = [row for row in self._rows(begin, min(self._total, begin + 1 + _INSPECTED)) if filled(row)]
        width = Counter(map(len, below[1:])).most_common(1)[0][0] if below[1:] else 0
        shown = heading(below[0], below[1:]) if 1 < width == len(below[0]) else None
        if shown is None or not shown.names or shown.unsure or below[0] in map(self._row, titles):
            return first
        self.above = titles
        return begin

    def _is_title(self, i: int) -> bool:
        """Whether a row may stand above a table: it has one cell with contents or none, begins as a comment, or has an empty
        line below it."""
        with contextlib.suppress(ValueError):
            row = self._row(i)
            return filled(row) < 2 or row[0].lstrip().startswith("#") or (i + 1 < self._total and not self._row(i + 1))
        return False

    def _rows(self, start: int, stop: int) -> Iterator[list[str]]:
        """The rows of the file that can be read."""
        for i in range(start, stop):
            with contextlib.suppress(ValueError):
                yield self._row(i)

    def __len__(self) -> int:
        return self._total - self._first

    def __getitem__(self, i: int) -> list[str]:
        """A row; empty for an empty line."""
        row = self._row(i + self._first)
        return row if i else [cell.replace("\ufeff", "") for cell in row]  # byte-order marks of files that were joined

    def _row(self, i: int) -> list[str]:
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
        i += self._first
        return (i if self._starts is None else int(self._starts[i])) + 1

    @property
    def width(self) -> int:
        """The most common number of cells in a row."""
        sizes = self._sizes()
        return sizes.most_common(1)[0][0] if sizes else 0

    def _sizes(self) -> Counter[int]:
        sizes = Counter(map(len, self.some(0, min(len(self), _INSPECTED))))
        del sizes[0]
        return sizes

    def some(self, start: int, stop: int, step: int = 1) -> Iterator[list[str]]:
        """The rows start … stop − 1, in steps, without invalid ones unless the file is read strictly."""
        for i in range(start, stop, step):
            with contextlib.suppress(*() if self.strict else (ValueError,)):
                yield self[i]

    def names(self, header: bool | None) -> tuple[str, ...]:
        """The column names in the first row, if `header` says that it has them or, by default, if its cells show it."""
        if header is None:
            return self.heading.names
        return tuple(cell.strip() for cell in self[0]) if header else ()

    @property
    def heading(self) -> Heading:
        """Whether the first row holds names, by the evidence of a sample of rows."""
        return _heading(*self._at, self.delimiter, self.quoted)

    # -- rows with too many cells ----------------------------------------------------------------------------------

    def columns(self, names: Sequence[str]) -> int:
        """The number of columns: of the names, or else the most cells that many rows have."""
        sizes = self._sizes()
        return len(names) or max((size for size, n in sizes.items() if n >= _COMMON * sizes.total()), default=0)

    def check_width(self, names: Sequence[str]) -> None:
        """Check that no row has more cells than there are columns; empty ones at its end don't count. Raises ValueError
        that lists the lines, because a cell with an unquoted separator would shift those behind it."""
        width = self.columns(names)
        rows, total = self._wider(width)
        if not total:
            return
        lines = ", ".join(f"{self.line(i):,}" for i in rows) + (", …" if total > len(rows) else "")
        first = self.delimiter.join(self[rows[0]])
        than = f"its header's {width}" if names else f"the {width} of other rows"
        advice = f"quote cells that hold {named(self.delimiter)}, or skip such rows with data.on_error=skip"
        if names and total >= len(self) - 1:
            advice = "if the first column holds row numbers or names, begin the header with a name for it"
        if names and self.width > width + 1:
            advice = f"line {self.line(0)} is read as the header: remove it if it is a title or a comment"
        raise ValueError(
            f"{brief(self.path)} has {counted(total, 'row')} with more cells than {than}: line{'s' * (total > 1)} {lines} "
            f"(the first is {first[:80]!r}); {advice}"
        )

    def ragged(self, names: Sequence[str]) -> Iterator[str]:
        """Notes on rows with more or fewer cells than there are columns."""
        width = self.columns(names)
        rows, total = self._wider(width)
        if total:
            lines = ", ".join(f"{self.line(i):,}" for i in rows) + (", …" if total > len(rows) else "")
            yield (
                f"{counted(total, 'row')} of {self.path.name!r} with more cells than the {width} columns (line {lines}) are "
                "refused; quote such cells, or skip the rows with data.on_error=skip"
            )
        begin, stop = int(bool(names)), min(len(self), _INSPECTED)
        sizes = {i: len(row) for i, row in zip(range(begin, stop), self._tolerated(begin, stop), strict=True) if row}
        if short := [i for i, size in sizes.items() if size < width]:
            lines = ", ".join(f"{self.line(i):,}" for i in short[:_LISTED]) + (", …" if len(short) > _LISTED else "")
            yield (
                f"{counted(len(short), 'row')} of the first {len(sizes):,} of {self.path.name!r} with fewer cells than the "
                f"{width} columns (line {lines}); those that lack a cell which is read are skipped"
            )

    def said_above(self, name: str) -> str:
        """A sentence on the rows above the table; `name` is that of the file."""
        lines = [f"{self.line(i - self._first):,} ({self._row(i)[0].strip()[:40]!r})" for i in self.above[:_LISTED]]
        more = ", …" if len(self.above) > len(lines) else ""
        one = len(self.above) == 1
        return (
            f"line{'' if one else 's'} {', '.join(lines)}{more} of {name} {'stands' if one else 'stand'} above the column "
            f"names, and {'is' if one else 'are'} not read"
        )

    def _tolerated(self, start: int, stop: int) -> Iterator[list[str]]:
        """Yield the rows from `start` to `stop` − 1, with an empty list for each invalid row."""
        for i in range(start, stop):
            try:
                yield self[i]
            except ValueError:
                yield []

    def _wider(self, width: int) -> tuple[list[int], int]:
        """The first rows with more than `width` cells, and the number of all such rows."""
        if self._starts is None:
            wide = self._lines.having_more(self.delimiter.encode(), width - 1)
            rows = [i for i in wide if filled(self._lines[i].split(self.delimiter)) > width]
            rows = [i - self._first for i in rows if i >= self._first]
            return rows[:_LISTED], len(rows)
        found = [(rows, n) for size, (rows, n) in self._widths.items() if size > width]
        first = sorted(i - self._first for rows, _ in found for i in rows)[:_LISTED]
        above = [i for i in first if i < 0]
        return first[len(above) :], sum(n for _, n in found) - len(above)

    def notes(self, header: bool | None, quoted: bool | None, beside: Cells | None = None) -> Iterator[str]:
        """Notes on what was detected in the file; `beside` the training file, only whether it alone begins with names."""
        name = repr(self.path.name)
        if self.above:
            yield self.said_above(name)
        if beside is not None:
            if header is None and bool(self.heading.names) != bool(beside.heading.names):
                yield self.heading.note(name, self.line(0))
            return
        if header is None:
            yield self.heading.note(name, self.line(0))
        if self._detected and self.delimiter != ",":
            yield f"the cells of {name} are separated by {named(self.delimiter)} (data.sep=comma or another overrules it)"
        if quoted is None and self.marked:
            how, other = (
                ("quoted as in CSV", "false") if self.quoted else ("not quoted, their quotation marks text", "true")
            )
            yield f"the cells of {name} are {how} (data.quoted={other} reads them otherwise)"


def named_rows(cells: Cells, example: Callable[[dict[str, str], str], Example | Skipped]) -> Table:
    """The table of a file whose first row holds the names of its columns: `example(record, where)` for each row below."""
    names = cells.names(True)
    if (twice := next((name for name in names if name and names.count(name) > 1), None)) is not None:
        raise ValueError(f"{brief(cells.path)} has {names.count(twice)} columns {brief(twice)}; rename one")
    if cells.strict:
        cells.check_width(names)

    def entry(i: int) -> Example | Skipped:
        row, where = cells[i + 1], f"{str(cells.path)!r}, line {cells.line(i + 1):,}"
        if (lacking := no_record(row, names, len(names))) is not None:
            return Skipped(lacking, where)
        return example(dict(zip(names, row, strict=False)), where)

    return ComputedTable(len(cells) - 1, entry)


def no_record(row: Sequence[str], names: Sequence[str], width: int) -> Skipped | None:
    """Why a row holds no record: it is empty, has the column names again, or more cells than there are columns."""
    if not row:
        return Skipped("empty")
    if names and row[0].strip() == names[0] and [cell.strip() for cell in row] == list(names):
        return Skipped("with the column names again")
    return Skipped(WIDE) if filled(row) > width else None


def notes_of(tables: Iterable[Cells | None], header: bool | None, quoted: bool | None) -> Iterator[str]:
    """Notes on what was detected in the table of each split, the training data first; None is a file of another form."""
    first: Cells | None = None
    for cells in tables:
        if cells is not None:
            yield from cells.notes(header, quoted, first)
        first = cells if first is None else first


def filled(row: Sequence[str]) -> int:
    """The number of cells of a row without empty ones at its end."""
    size = len(row)
    while size and not row[size - 1].strip():
        size -= 1
    return size


@lru_cache(maxsize=64)
def _separator(path: Path, stamp: Stamp, encoding: str, strict: bool) -> str:
    lines, beginning = Lines(path, encoding, strict), list[str]()
    with contextlib.suppress(*() if strict else (ValueError,)):
        if separator := declared(lines):
            return separator
    for i in range(min(len(lines), BEGINNING)):
        with contextlib.suppress(*() if strict else (ValueError,)):
            beginning.append(lines[i])
    return detected_separator("\n".join(beginning))


@lru_cache(maxsize=64)
def _heading(path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, quoted: bool) -> Heading:
    """The decision on the first row, by the rows after it and others from the whole file."""
    cells = Cells(path, "tsv", encoding, quoted, strict, delimiter)
    near = 1 + _INSPECTED // 2
    step = max(1, (len(cells) - near) // (_INSPECTED // 2))
    rows = [*cells.some(1, min(near, len(cells))), *cells.some(near, len(cells), step)]
    return heading(cells[0], rows)


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
) -> tuple[NDArray[np.int64], dict[int, str], Widths]:
    """The line at which each row begins, followed by the number of lines; unless strict, the errors of invalid rows; and the
    numbers of cells. Reading continues after the line in which a row turns out to be invalid."""
    lines = Lines(path, encoding, strict)
    feed = _Feed(lines)
    reader = _reader(feed, delimiter)
    starts, wrong, widths = array("q", [0]), dict[int, str](), dict[int, tuple[list[int], int]]()
    again = 0
    while True:
        begin = starts[-1]
        try:
            row = next(reader, None)
            if row is None:
                break
            rows, count = widths.get(size := filled(row), ([], 0))
            widths[size] = (rows if count >= _LISTED else [*rows, len(starts) - 1]), count + 1
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
    return np.frombuffer(starts, np.int64), wrong, widths


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
