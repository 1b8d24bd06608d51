"""Tables of numbers with one row per time: chosen columns, filled gaps, and checked dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief
from .csv_header import short
from .timestamps import leaps

Numbers = NDArray[np.float32]
DecimalMark = Literal[".", ","]

_LARGEST = float(np.finfo(np.float32).max)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_THOUSANDS = "|".join(  # 1,234 1.234.567 1 234
    (
        r"\d{1,3}(?:,\d{3})+(?:\.\d*)?",
        r"\d{1,3}(?:\.\d{3}){2,}(?:,\d*)?",
        r"\d{1,3}(?:[ '’\u00a0\u2009\u202f]\d{3})+(?:[.,]\d*)?",
    )
)
_CURRENCY = "[$€£¥₹₽]|USD|EUR|GBP|CHF|JPY"
_SPELLINGS = (  # of numbers that are not read, with what is unusual in them
    ("a percent sign", re.compile(r"[-+]?\d[\d.,]*\s?[%‰]")),
    ("a currency sign", re.compile(rf"[-+]?(?:(?:{_CURRENCY})\s?[-+]?\d[\d.,]*|\d[\d.,]*\s?(?:{_CURRENCY}))")),
    ("thousands separators", re.compile(f"[-+]?(?:{_THOUSANDS})")),
    ("a decimal comma", re.compile(r"[-+]?\d+,\d+")),
    ("a unit", re.compile(r"[-+]?\d[\d.,]*\s?[^\W\d_]{1,9}")),
)
_INFINITE = re.compile(r"[-+]?\d[\d.]*e[-+]?\d+", re.IGNORECASE)  # 1e400


def finite(cell: Any) -> float | None:
    """The number in a cell; None if it has none, or one beyond float32: NaN, an infinity, 1e39."""
    try:
        value = float(cell)
    except (ValueError, TypeError, OverflowError):
        return None
    return value if abs(value) <= _LARGEST else None


def what_not(cell: Any) -> str:
    """What a cell without a number in float32 lacks: "number", or "finite number" if it holds NaN, an infinity or 1e39."""
    try:
        return "number" if isinstance(cell, bool) else "finite number" if float(cell) else "number"
    except (ValueError, TypeError, OverflowError):
        return "number"


def spelling(cell: str) -> str | None:
    """What is unusual in a number that is not read as one, such as "a percent sign"; None for what is no number either
    way."""
    if finite(cell) is not None or _INFINITE.fullmatch(cell):
        return None
    return next((name for name, pattern in _SPELLINGS if pattern.fullmatch(cell)), None)


@dataclass(frozen=True)
class NumberFormat:
    """How a table of numbers is read.

    columns:     the columns to read, by name or number; by default all but a first column of dates.
    fill_gaps:   whether a cell without a number has the value above it; otherwise it is an error.
    decimal:     the decimal mark of numbers in text.
    date_format: the format of the dates in the first column, as for `datetime.strptime`; by default ISO 8601.
    """

    columns: tuple[str | int, ...] | None = None
    fill_gaps: bool = False
    decimal: DecimalMark = "."
    date_format: str | None = None

    def number(self, cell: object) -> float | None:
        """The number in a cell; None if it has none, or one beyond float32."""
        return finite(cell.replace(self.decimal, ".") if isinstance(cell, str) else cell)


class NumberTable(NamedTuple):
    """The numbers of a table (n, columns), the names of the columns, and notes on the dates."""

    values: Numbers
    names: tuple[str, ...]
    notes: tuple[str, ...]


def number_table(
    where: str, rows: Sequence[Sequence[Any]], names: tuple[str, ...] | None, first_row: int, how: NumberFormat
) -> NumberTable:
    """The numbers in rows of cells: texts, numbers or dates. `where` and `first_row`, the number of the first row, are for
    messages. Raises ValueError that names row and column if a cell has no number, or if the dates are not in order."""
    if not rows:
        raise ValueError(f"{where} holds no row of numbers")
    names = names or tuple(f"column {i}" for i in range(len(rows[0])))
    dated = how.date_format is not None or how.number(rows[0][0]) is None
    chosen = _chosen(where, names, dated, how.columns)
    values = np.empty((len(rows), len(chosen)), np.float32)
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"{where}, row {i + first_row}: {len(row)} cells, and {len(names)} in the first row")
        for j, column in enumerate(chosen):
            number = how.number(row[column])
            if number is None and (not how.fill_gaps or i == 0):
                place = f"{where}, row {i + first_row}, {names[column][:60]}"
                raise ValueError(f"{place}: {_no_number(row[column], how)}")
            values[i, j] = values[i - 1, j] if number is None else number
    notes = _times(where, [row[0] for row in rows], first_row, how.date_format) if dated else ()
    return NumberTable(values, tuple(names[column] for column in chosen), notes)


def _no_number(cell: Any, how: NumberFormat) -> str:
    text = str(cell)
    if how.decimal == "." and _DECIMAL_COMMA.fullmatch(text.strip()):
        return f"{text[:40]!r} is no number with a decimal point; data.decimal=',' reads decimal commas"
    filled = "the first row needs a number" if how.fill_gaps else "data.gaps=fill repeats the value before it"
    return f"{text[:40]!r} is no {what_not(cell)}; {filled}"


def _times(where: str, cells: list[Any], first_row: int, date_format: str | None) -> tuple[str, ...]:
    try:
        if date_format is None or isinstance(cells[0], date):
            return leaps([str(cell) for cell in cells], first_row)
        return leaps([str(cell) for cell in cells], first_row, date_format)
    except ValueError as error:
        raise ValueError(f"{where}, {error}") from None


def _chosen(where: str, names: tuple[str, ...], dated: bool, columns: tuple[str | int, ...] | None) -> list[int]:
    if columns is None:
        return list(range(int(dated), len(names)))
    for column in columns:
        if column not in names and not (isinstance(column, int) and 0 <= column < len(names)):
            raise ValueError(f"{where} has no column {brief(column)}; it has {', '.join(short(names))}")
    return [names.index(column) if column in names else int(column) for column in columns]
