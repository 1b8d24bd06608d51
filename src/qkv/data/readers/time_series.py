"""Time series from CSV, as windows of a history and a forecast horizon."""

from __future__ import annotations

import csv
import io
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from ..files.csv_header import short
from ..files.lines import whole_text
from ..files.timestamps import leaps
from ..source import SPLITS, Example, Source, Split, Table, new_name_of_refuse

Numbers = NDArray[np.float32]
_LARGEST = float(np.finfo(np.float32).max)


class Windows:
    """Windows of `history + horizon` rows, one every `stride` rows, from part of a series."""

    def __init__(self, values: Numbers, spec: SeriesSource, begin: int, end: int, names: tuple[str, ...]) -> None:
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

    Values are standardized by the mean and standard deviation of the training split, so that errors are comparable between
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

    def edges(self, n: int) -> list[int]:
        """Where each split begins, and where the last ends."""
        return [int(n * round(sum(self.shares[:k]), 9)) for k in range(4)]

    def scaling(self) -> tuple[Numbers, Numbers]:
        """The mean of each column in the training split, and its standard deviation there, 1 in place of 0."""
        values, _ = self.values()
        trained = values[: self.edges(len(values))[1]]
        deviation = trained.std(0)
        return trained.mean(0), np.where(deviation > 0, deviation, 1)

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        values, names = self.values()
        edges, number = self.edges(len(values)), SPLITS.index(split)
        begin, end = max(0, edges[number] - (self.history if number else 0)), edges[number + 1]
        center, spread = self.scaling()
        windows = Windows((values - center) / spread, self, begin, end, names)
        if not len(windows):
            raise ValueError(
                f"the {split} split has {end - begin:,} rows, fewer than a history of {self.history} and a horizon of "
                f"{self.horizon}; shorten them, or give it a larger share"
            )
        return windows


class Series(SeriesSource, kind="series"):
    """A CSV file (or .gz) of numbers with one row per time, oldest first; the first row may name the columns. If the first
    column has dates, their order is checked, and uneven steps are noted.

    columns: the columns to read, by name or number from 0; by default all but a first column that isn't numbers (dates).
    gaps:    for cells without a number: "raise" an error, or "fill" them with the last value.
    rows:    the numbers of rows in the training, validation and test splits, in place of `shares`.
    """

    path: str = ""
    columns: tuple[str | int, ...] | None = None
    gaps: Annotated[Literal["raise", "fill"], BeforeValidator(new_name_of_refuse)] = "raise"
    rows: tuple[int, int, int] | None = None

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
        return self._read()[2]

    def _read(self) -> tuple[Numbers, tuple[str, ...], tuple[str, ...]]:
        path = Path(self.path).expanduser()
        if not self.path or not path.is_file():
            missing = f"there is no file {self.path!r}" if self.path else "no data"
            raise ValueError(f"{missing}; give data.path, a CSV file of numbers with one row per time")
        stat = path.stat()
        return _read(path, self.columns, self.gaps, (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=4)
def _read(
    path: Path, columns: tuple[str | int, ...] | None, gaps: str, stamp: tuple[int, int]
) -> tuple[Numbers, tuple[str, ...], tuple[str, ...]]:
    """The numbers, the column names, and notes on the timestamps."""
    try:
        rows = [row for row in csv.reader(io.StringIO(whole_text(path))) if row]
    except csv.Error as error:
        raise ValueError(f"{path} is not valid CSV: {error}") from None
    header = None if not rows or any(_number(cell) is not None for cell in rows[0]) else rows.pop(0)
    if not rows:
        raise ValueError(f"{path} holds no row of numbers")
    names = tuple(header or (f"column {i}" for i in range(len(rows[0]))))
    chosen = _chosen(path, names, rows[0], columns)
    values = np.empty((len(rows), len(chosen)), np.float32)
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"{path}, row {i + 1 + bool(header)}: {len(row)} cells, and {len(names)} in the first row")
        for j, column in enumerate(chosen):
            number = _number(row[column])
            if number is None and (gaps == "raise" or i == 0):
                raise ValueError(
                    f"{path}, row {i + 1 + bool(header)}, {names[column][:60]}: {row[column][:40]!r} is no number; "
                    "data.gaps=fill repeats the value before it"
                )
            values[i, j] = values[i - 1, j] if number is None else number
    dated = _number(rows[0][0]) is None
    return values, tuple(names[column] for column in chosen), _times(path, rows, 1 + bool(header)) if dated else ()


def _times(path: Path, rows: list[list[str]], first_row: int) -> tuple[str, ...]:
    try:
        return leaps([row[0] for row in rows], first_row)
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from None


def _chosen(path: Path, names: tuple[str, ...], first: list[str], columns: tuple[str | int, ...] | None) -> list[int]:
    if columns is None:
        return list(range(int(_number(first[0]) is None), len(names)))
    for column in columns:
        if column not in names and not (isinstance(column, int) and 0 <= column < len(names)):
            raise ValueError(f"{path} has no column {column!r}; it has {', '.join(short(names))}")
    return [names.index(column) if column in names else int(column) for column in columns]


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None
