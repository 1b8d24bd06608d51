"""CSV and TSV reader with random access to rows, for files of any size; TSV cells may be quoted as in CSV or not."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief, counted
from ..file_kinds import other_table
from ..odd_rows import beside as beside_each_other
from ..odd_rows import divided, enclosed, merged, odd_rows
from ..source import Example, Skipped, Table
from ..tables import ComputedTable
from .cache import Stamp, stamp_of
from .compressed import open_bytes
from .csv_dialect import (
    BEGINNING,
    INSPECTED,
    LISTED,
    USUAL,
    Quotes,
    Widths,
    declared,
    detected_separator,
    filled,
    looks_quoted,
    marked,
    named,
    other_quotes,
    reader_of,
    restored,
    rows_of_one_line,
    starts_of,
    with_returns,
)
from .csv_header import Heading, heading
from .lines import Lines

Form = Literal["csv", "tsv"]
WIDE = "with more cells than columns"  # the reason to skip a row
_ABOVE = 20  # rows above a table, at most
_TOLD = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}  # separators that may divide cells
_COMMON = 0.1  # the least share of rows whose number of cells may be that of a table without a header


class Cells:
    """The rows of a file. A row is a line, or several if a quoted cell contains line ends. Empty lines at the beginning, and
    Excel's line `sep=;` with the separator, are left out.

    Raises ValueError for a file that is no text, and that names the line of an invalid row in a quoted file; with
    `strict=False` only when that row is read. Rows of quoted files may end with a lone carriage return, as on old
    Macs; one within a cell of other files is text.
    """

    def __init__(
        self,
        path: Path,
        form: Form,
        encoding: str,
        quoted: bool | None = None,
        strict: bool = True,
        sep: str | None = None,
        quotes: Quotes = USUAL,
    ) -> None:
        self.path, self.strict, self.quotes = path, strict, quotes
        self._plain = quoted is False
        quoted = True if quoted is None and quotes != USUAL else quoted
        form = "csv" if sep not in (None, "\t") else form
        self._lines = Lines(path, encoding, strict)
        if (kind := other_table(path, open_bytes(path))) is not None:
            raise ValueError(kind)
        at = path.expanduser().resolve(), stamp_of(path.expanduser()), encoding, strict
        self._detected = not sep and form == "csv"
        self.delimiter = sep or ("\t" if form == "tsv" else _separator(*at))
        self.marked = form == "tsv" and marked(self._lines) is not None
        self.quoted = form == "csv" or (looks_quoted(*at) if quoted is None else quoted)
        self._starts: NDArray[np.int64] | None = None
        self._wrong: dict[int, str] = {}
        self._widths: Widths = {}
        if self.quoted:
            try:
                self._starts, self._wrong, self._widths = starts_of(*at, self.delimiter, quotes)
            except ValueError as error:
                raise ValueError(f"{error}{self._advice(at)}") from None
        self._at = at
        self._total = len(self._lines) if self._starts is None else len(self._starts) - 1
        self.above: list[int] = []
        self._first = self._table_begins()

    @property
    def other_quotes(self) -> Quotes | None:
        """Quotes that read each row of the file with as many cells, if these don't."""
        if self.quotes != USUAL or self._plain:
            return None
        first = next(self.some(0, min(1, len(self))), [])
        wide = max(self._widths, default=0) > len(first)
        return other_quotes(*self._at, self.delimiter, bool(self._wrong) or wide or _in_quotes(first))

    def _advice(self, at: tuple[Path, Stamp, str, bool]) -> str:
        """Return advice on how to read a file with an invalid row; empty if there is none."""
        quotes = other_quotes(*at, self.delimiter, True) if self.quotes == USUAL else None
        if quotes is not None:
            return f"; its cells seem to be {quotes}: {shlex.join(quotes.settings())} reads them"
        return '; qkv reads cells in " marks, doubled within a cell' if self.quotes == USUAL else ""

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
        below = [row for row in self._rows(begin, min(self._total, begin + 1 + INSPECTED)) if filled(row)]
        width = Counter(map(len, below[1:])).most_common(1)[0][0] if below[1:] else 0
        several = any(filled(row) > 1 for row in below[1:])  # else each row of the table has one cell, as a title has
        shown = heading(below[0], below[1:]) if several and 1 < width == len(below[0]) else None
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
            return list(
                rows_of_one_line(*self._at, self.delimiter, self.quotes, begin, int(self._starts[behind]))[
                    i - int(first)
                ]
            )
        text = self._lines.text(begin, stop)
        lines = (f"{with_returns(line)}\n" for line in text.split("\n"))
        return restored(next(reader_of(lines, self.delimiter, self.quotes), []))

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
        sizes = Counter(map(len, self.some(0, min(len(self), INSPECTED))))
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
        return _heading(*self._at, self.delimiter, self.quoted, self.quotes)

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
        advice = self._remedy(total)
        if names and total >= len(self) - 1:
            advice = "if the first column holds row numbers or names, begin the header with a name for it"
        if names and self.width > width + 1:
            advice = f"line {self.line(0)} is read as the header: remove it if it is a title or a comment"
        raise ValueError(
            f"{brief(self.path)} has {counted(total, 'row')} with more cells than {than}: line{'s' * (total > 1)} {lines} "
            f"(the first is {first[:80]!r}); {advice}"
        )

    def _remedy(self, wide: int) -> str:
        """What to do with `wide` rows that have too many cells."""
        quotes = self.other_quotes
        if quotes is not None:
            return f"its cells seem to be {quotes}: {shlex.join(quotes.settings())} reads them"
        skip = ", or skip such rows with data.on_error=skip" if 2 * wide < len(self) else ""
        return f"quote cells that hold {named(self.delimiter)}{skip}"

    def faults(self, names: Sequence[str]) -> Iterator[str]:
        """Notes on rows that can't be read, and on those with more or fewer cells than there are columns."""
        width = self.columns(names)
        if n := len(self._wrong):
            first = self._wrong[min(self._wrong)].removeprefix(f"{str(self.path)!r}, ")
            skip = ", or skip such rows with data.on_error=skip" if 2 * n < len(self) else ""
            yield (
                f"{counted(n, 'row')} of {self.path.name!r} can't be read, and {'is' if n == 1 else 'are'} refused "
                f"({first}); correct the quotation marks{skip}"
            )
        rows, total = self._wider(width)
        if total:
            lines = ", ".join(f"{self.line(i):,}" for i in rows) + (", …" if total > len(rows) else "")
            yield (
                f"{counted(total, 'row')} of {self.path.name!r} with more cells than the {width} columns (line {lines}) "
                f"{'is' if total == 1 else 'are'} refused; {self._remedy(total)}"
            )
        if (short := self.short_rows(names)) is not None:
            yield f"{short}; rows that lack a needed cell are skipped"

    def short_rows(self, names: Sequence[str]) -> str | None:
        """Return a note on rows with fewer cells than columns."""
        width, begin, stop = self.columns(names), int(bool(names)), min(len(self), INSPECTED)
        sizes = {i: len(row) for i, row in zip(range(begin, stop), self._tolerated(begin, stop), strict=True) if row}
        if short := [i for i, size in sizes.items() if size < width]:
            lines = ", ".join(f"{self.line(i):,}" for i in short[:LISTED]) + (", …" if len(short) > LISTED else "")
            return (
                f"{counted(len(short), 'row')} of the first {len(sizes):,} of {self.path.name!r} with fewer cells than the "
                f"{width} columns (line {lines})"
            )
        return None

    def odd(self, names: Sequence[str], columns: Iterable[str | int] = ()) -> Iterator[str]:
        """Notes on rows that may be no examples and on marks that are read as text, by the first and the last rows; and on
        merged cells in these columns."""
        width = self.columns(names)
        yield from self._swallowed(width)
        begin, stop = int(bool(names)), min(len(self), INSPECTED)
        spaced = [
            i for i in range(begin, stop if self.quoted else 0) if any(map(_is_marked, *self._tolerated(i, i + 1)))
        ]
        if spaced:
            lines = ", ".join(f"{self.line(i):,}" for i in spaced[:LISTED]) + (", …" if len(spaced) > LISTED else "")
            yield (
                f"{counted(len(spaced), 'row')} of the first {stop:,} of {self.path.name!r} with a space before a quotation "
                f"mark (line {lines}): the mark is read as text, and does not quote the cell; remove the space"
            )
        end = max(stop, len(self) - INSPECTED)
        rows = [(self.line(i), row) for i, row in zip(range(begin, stop), self._tolerated(begin, stop), strict=True)]
        rows += [
            (self.line(i), row) for i, row in zip(range(end, len(self)), self._tolerated(end, len(self)), strict=True)
        ]
        yield from odd_rows(self.path.name, rows, width, end == stop, _are_names)
        yield from beside_each_other(self.path.name, names, rows)
        if self.other_quotes is None:
            yield from enclosed(self.path.name, rows, self.quotes.quote)
        if self._detected:
            yield from divided(self.path.name, rows, {s: name for name, s in _TOLD.items() if s != self.delimiter})
        for column in columns:
            place = column if isinstance(column, int) else names.index(column) if column in names else width
            if place < width:
                cells = [row[place] if place < len(row) else "" for _, row in rows if row]
                yield from merged(names[place] if names else place, cells)

    def _swallowed(self, width: int) -> Iterator[str]:
        """A note on rows of several lines most of which would be rows, as between two cells whose mark was not closed."""
        if self._starts is None:
            return
        found: list[str] = []
        for i in np.flatnonzero(np.diff(self._starts) > 2)[:INSPECTED].tolist():
            begin, end = int(self._starts[i]), int(self._starts[i + 1])
            alike = sum(len(self._lines[line].split(self.delimiter)) == width for line in range(begin + 1, end - 1))
            if i not in self._wrong and 2 * alike > end - begin - 2 and width > 1:
                found.append(f"{begin + 1:,} to {end:,}")
        if found:
            lines = ", ".join(found[:LISTED]) + (", …" if len(found) > LISTED else "")
            yield (
                f"lines {lines} of {self.path.name!r} are one row, because a quotation mark in the first is closed in the "
                "last; if they are several rows, correct the marks"
            )

    def said_above(self, name: str) -> str:
        """A sentence on the rows above the table; `name` is that of the file."""
        lines = [f"{self.line(i - self._first):,} ({self._row(i)[0].strip()[:40]!r})" for i in self.above[:LISTED]]
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
            return rows[:LISTED], len(rows)
        found = [(rows, n) for size, (rows, n) in self._widths.items() if size > width]
        first = sorted(i - self._first for rows, _ in found for i in rows)[:LISTED]
        above = [i for i in first if i < 0]
        return first[len(above) :], sum(n for _, n in found) - len(above)

    def notes(
        self,
        header: bool | None,
        quoted: bool | None,
        beside: Cells | None = None,
        columns: Iterable[str | int] = (),
    ) -> Iterator[str]:
        """Notes on what was detected in the file, whose `columns` are read; `beside` the training file, only on odd rows and
        whether it alone begins with names."""
        yield from self._detected_notes(header, quoted, beside)
        yield from self.odd(self.names(header), columns)

    def _detected_notes(self, header: bool | None, quoted: bool | None, beside: Cells | None) -> Iterator[str]:
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
        if (quotes := self.other_quotes) is not None:
            yield f"the cells of {name} seem to be {quotes}; {shlex.join(quotes.settings())} reads them so"
        elif quoted is None and self.marked:
            how, other = (
                ("quoted as in CSV", "false") if self.quoted else ("not quoted, their quotation marks text", "true")
            )
            yield f"the cells of {name} are {how} (data.quoted={other} reads them otherwise)"


def _is_marked(cell: str) -> bool:
    return cell[:1] == " " and cell.lstrip()[:1] == '"' == cell.rstrip()[-1:] and len(cell.strip()) > 1


def _in_quotes(row: Sequence[str]) -> bool:
    """Whether the marks around all cells of a row were read as text."""
    return bool(row) and all(len(cell) > 2 and cell[0] == cell[-1] and cell[0] in "'\"" for cell in row)


def _are_names(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row certainly holds the names of the columns of the rows below."""
    found = heading(row, below)
    return bool(found.names) and not found.unsure


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


def notes_of(
    tables: Iterable[Cells | None], header: bool | None, quoted: bool | None, columns: Sequence[str | int] = ()
) -> Iterator[str]:
    """Notes on what was detected in the table of each split, the training data first, of which these columns are read; None
    is a file of another form."""
    first: Cells | None = None
    for cells in tables:
        if cells is not None:
            yield from cells.notes(header, quoted, first, columns)
        first = cells if first is None else first


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
def _heading(
    path: Path, stamp: Stamp, encoding: str, strict: bool, delimiter: str, quoted: bool, quotes: Quotes
) -> Heading:
    """The decision on the first row, by the rows after it and others from the whole file."""
    cells = Cells(path, "tsv", encoding, quoted, strict, delimiter, quotes)
    near = 1 + INSPECTED // 2
    step = max(1, (len(cells) - near) // (INSPECTED // 2))
    rows = [*cells.some(1, min(near, len(cells))), *cells.some(near, len(cells), step)]
    return heading(cells[0], rows)
