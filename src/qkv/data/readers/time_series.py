"""Time series from CSV, as windows of a history and a forecast horizon."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...core.spec import counted
from ..files.cache import Stamp, stamp_of
from ..files.compressed import bare_name, suffix_of
from ..files.csv_dialect import Separator
from ..files.csv_header import short
from ..files.csv_tsv import Cells
from ..files.encodings import Encoding
from ..files.lines import Lines
from ..files.number_tables import DecimalMark, NumberFormat, Numbers, NumberTable, number_table
from ..files.parquet import SUFFIX, ParquetRows
from ..files.records import FORMATS, RecordFormat, open_records
from ..source import SPLITS, Example, Source, Split, Table

_SHOWN = 8  # columns in a note
_BEGINNING = 50  # lines that show the separator


class SeriesWindows:
    """Windows of `history + horizon` rows, one every `stride` rows, from part of a series."""

    def __init__(
        self, values: NDArray[np.float32], spec: SeriesSource, begin: int, end: int, names: tuple[str, ...]
    ) -> None:
        self._values, self._spec, self._begin, self._names = values, spec, begin, names
        self._count = max(0, (end - begin - spec.history - spec.horizon) // spec.stride + 1)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Example:
        start = self._begin + i * self._spec.stride
        middle = start + self._spec.history
        return {
            "history": self._values[start:middle],
            "future": self._values[middle : middle + self._spec.horizon],
            "names": self._names,
            "where": f"rows {start + 1:,} to {middle + self._spec.horizon:,}",
        }


class SeriesSource(Source):
    """Base class of time series sources: windows of `history` rows, and the `horizon` rows to forecast from them.

    Values are standardized by the mean and standard deviation of the training split, so errors are comparable between
    columns and with the literature. `shares` or `rows` set the sizes of the splits. The history of a validation or test
    window may be in the split before it.
    """

    history: int = Field(default=96, gt=0)
    horizon: int = Field(default=24, gt=0)
    stride: int = Field(default=1, gt=0)
    shares: tuple[float, float, float] = (0.7, 0.1, 0.2)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if min(self.shares) <= 0 or sum(self.shares) > 1 + 1e-9:
            raise ValueError(f"shares are three numbers above 0 that add up to 1 at most, not {list(self.shares)}")
        return self

    @property
    def fixed(self) -> bool:
        return True

    def values(self) -> tuple[Numbers, tuple[str, ...]]:
        """All rows (n, columns), and the columns' names."""
        raise NotImplementedError

    def step(self) -> float | None:
        """The median seconds between two rows; None if unknown."""
        return None

    def edges(self, n: int) -> list[int]:
        """Where each split begins, and where the last ends."""
        return [int(n * round(sum(self.shares[:k]), 9)) for k in range(4)]

    def scaling(self) -> tuple[Numbers, Numbers]:
        """The mean of each column in the training split, and its standard deviation there, 1 in place of 0."""
        values, _ = self.values()
        first = values[:1].sum(0)  # subtracted, so counters of 1e15 keep their last digits
        trained = values[: self.edges(len(values))[1]] - first
        deviation = trained.std(0)
        return first + trained.mean(0), np.where(deviation > 0, deviation, 1)

    def described(self, table: NumberTable) -> tuple[str, ...]:
        """Notes on a table: its times, the columns that are forecast, and which of them are constant."""
        values, names = table.values, table.names
        trained = values[: self.edges(len(values))[1]]
        constant = [name for name, spread in zip(names, np.ptp(trained, 0), strict=True) if not spread]
        others = f", and {_listed(table.left_out)} {_is(table.left_out)} not" if table.left_out else ""
        notes = (*table.notes, f"{_listed(names)} {_is(names)} forecast{others} (data.columns)")
        if constant and len(trained):
            notes += (
                f"{_listed(constant)} {_is(constant)} constant in the training split, easy to forecast, and lower"
                f"{'s' * (len(constant) == 1)} the mean error (data.columns leaves columns out)",
            )
        return notes

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.windows(split, *self.scaling())

    def windows(self, split: Split, center: Numbers, spread: Numbers) -> SeriesWindows:
        """Return the windows of a split. The values of each column are scaled: (x − center) / spread."""
        values, names = self.values()
        edges, number = self.edges(len(values)), SPLITS.index(split)
        begin, end = max(0, edges[number] - (self.history if number else 0)), edges[number + 1]
        windows = SeriesWindows(((values - center) / spread).astype(np.float32), self, begin, end, names)
        if not len(windows):
            raise ValueError(
                f"the {split} split has {end - begin:,} rows, fewer than a history of {self.history} and a horizon of "
                f"{self.horizon}; shorten them, or give it a larger share"
            )
        return windows


def _listed(names: Sequence[str]) -> str:
    some = [name or "(empty)" for name in short(names)[:_SHOWN]]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join(some) + "".join(f" and {one}" for one in more)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


class TimeSeries(SeriesSource, kind="series"):
    """A CSV, TSV, JSON Lines (plain or compressed) or Parquet file of numbers with one row per time, oldest first; the first
    row of a CSV or TSV may name the columns. True and false are 1 and 0. The order of the rows' times is checked, and uneven
    steps are noted. The times are a first column that isn't numbers, or a column with a name such as `date`, `timestamp` or
    `year`; they are not forecast.

    columns: the columns to read, by name or number from 0; by default all but the times, and the numbers of rows that a data
             frame's index leaves in a first column without a name.
    gaps:    for cells without a number: "raise" an error, or "fill" them with the last value.
    rows:    the numbers of rows in the training, validation and test splits, in place of `shares`.
    header:  whether the first row names the columns; by default detected.
    encoding: the character encoding; UTF-16 and UTF-32 files with a byte-order mark are recognized.
    sep:     the character between cells, such as ";" or "|", or its name, such as "tab"; by default detected.
    decimal: the decimal mark of numbers, "." or ",".
    date_format: the format of dates in the first column, in the notation of `datetime.strptime`, such as
             "%d.%m.%Y %H:%M"; by default found, and if days and months could be exchanged, by the order of the rows.
    """

    path: str = ""
    columns: tuple[str | int, ...] | None = None
    gaps: Literal["raise", "fill"] = "raise"
    rows: tuple[int, int, int] | None = None
    header: bool | None = None
    encoding: Encoding = "utf-8"
    sep: Separator | None = None
    decimal: DecimalMark = "."
    date_format: str | None = None

    def edges(self, n: int) -> list[int]:
        if self.rows is None:
            return super().edges(n)
        edges = [0, *(sum(self.rows[: k + 1]) for k in range(3))]
        if edges[-1] > n or min(self.rows) < 1:
            raise ValueError(f"{self.path} has {n:,} rows, and rows asks for {' + '.join(map(str, self.rows))} of them")
        return edges

    def values(self) -> tuple[Numbers, tuple[str, ...]]:
        return self._read()[:2]

    def notes(self) -> tuple[str, ...]:
        return self.described(self._read())

    def step(self) -> float | None:
        return self._read().step

    def times(self) -> tuple[str, ...]:
        """Notes on the times of the rows."""
        return self._read().times

    def _read(self) -> NumberTable:
        path = Path(self.path).expanduser()
        if not self.path or not path.is_file():
            missing = f"there is no file {self.path!r}" if self.path else "no data"
            raise ValueError(
                f"{missing}; give data.path, a CSV, JSONL or Parquet file of numbers with one row per time"
            )
        how = NumberFormat(self.columns, self.gaps == "fill", self.decimal, self.date_format)
        return _read(path, self.header, self.sep, self.encoding, how, stamp_of(path))


@lru_cache(maxsize=4)
def _read(
    path: Path, header: bool | None, sep: str | None, encoding: str, how: NumberFormat, stamp: Stamp
) -> NumberTable:
    if FORMATS.get(suffix_of(path)) == "jsonl":
        records = open_records(path, (), RecordFormat(encoding=encoding))
        keys = tuple(dict.fromkeys(name for _, record in records.rows for name in record))
        objects = [[record.get(name) for name in keys] for _, record in records.rows]
        return number_table(str(path), objects, keys, 1, how)
    if suffix_of(path) == SUFFIX:
        table = ParquetRows(path)
        return number_table(
            str(path), list(zip(*map(table.column, table.names), strict=True)), tuple(table.names), 1, how
        )
    cells = Cells(path, "csv", encoding, True, True, sep or _separator(path, encoding, how))
    rows = [row for row in cells.some(0, len(cells)) if row]
    detected = bool(rows) and bool(cells.heading.names)
    named = header if header is not None or not rows else detected or all(how.number(cell) is None for cell in rows[0])
    names = tuple(cell.strip() for cell in rows[0]) if named and rows else None
    kept = rows if names is None else [row for row in rows if tuple(map(str.strip, row)) != names]
    numbers = number_table(str(path), kept, names, (cells.line(0) if rows else 1) + bool(names), how)
    notes = (*numbers.notes, *cells.notes(header if detected == bool(names) else bool(names), True))
    if names is not None and (again := len(rows) - len(kept) - 1):
        notes += (f"{counted(again, 'row')} with the column names again left out",)
    return numbers._replace(notes=notes)


def _separator(path: Path, encoding: str, how: NumberFormat) -> str | None:
    """The separator of a file: a tab in a .tsv; with decimal commas, a semicolon or tab; None to detect it."""
    if bare_name(path).lower().endswith(".tsv"):
        return "\t"
    if how.decimal != ",":
        return None
    lines = Lines(path, encoding)
    first = [lines[i] for i in range(min(len(lines), _BEGINNING))]
    return "\t" if any("\t" in line for line in first) and not any(";" in line for line in first) else ";"
