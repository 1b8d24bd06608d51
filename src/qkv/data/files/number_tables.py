"""Tables of numbers with one row per time: chosen columns, filled gaps, and checked dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief, counted
from .csv_header import short
from .timestamps import calendar_columns, is_clock, is_date, joined_times, names_time, order

Numbers = NDArray[np.float64]
DecimalMark = Literal[".", ","]

FLAGS = {"true": 1.0, "false": 0.0}
"""The numbers of a column of true and false."""
_LARGEST = float(np.finfo(np.float32).max)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_THOUSANDS = "|".join(  # 1,234 1.234.567 1 234
    (
        r"\d{1,3}(?:,\d{3})+(?:\.\d*)?",
        r"\d{1,3}(?:\.\d{3}){2,}(?:,\d*)?",
        r"\d{1,3}(?:[ '’\u00a0\u2009\u202f]\d{3})+(?:[.,]\d*)?",
    )
)
_COMMA_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
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
    """Return the number in a cell; None if the cell holds no number, or one that is not finite in float32, such as 1e39."""
    value = _number(cell)
    return value if value is not None and abs(value) <= _LARGEST else None


def what_not(cell: Any) -> str:
    """What a cell that `finite` refuses lacks: "finite number" if it holds NaN, an infinity or 1e39, else "number"."""
    return "number" if _number(cell) is None else "finite number"


def _number(cell: Any) -> float | None:
    """The number in a cell; not `1_000`, which Python reads as 1000."""
    try:
        return None if isinstance(cell, str) and "_" in cell else float(cell)
    except (ValueError, TypeError, OverflowError):
        return None


def spelling(cell: str) -> str | None:
    """Return why a number in text is not read, such as "a percent sign"; None if the text is read, or is not a number."""
    if finite(cell) is not None or _INFINITE.fullmatch(cell):
        return None
    return next((name for name, pattern in _SPELLINGS if pattern.fullmatch(cell)), None)


@dataclass(frozen=True)
class NumberFormat:
    """How a table of numbers is read.

    columns:     the columns to read, by name or number; by default all but the times of the rows and their numbers.
    fill_gaps:   whether a cell without a number has the value above it; otherwise it is an error.
    decimal:     the decimal mark of numbers in text.
    date_format: the format of the dates in the first column, as for `datetime.strptime`; by default found, see `timestamps`.
    """

    columns: tuple[str | int, ...] | None = None
    fill_gaps: bool = False
    decimal: DecimalMark = "."
    date_format: str | None = None

    def number(self, cell: object) -> float | None:
        """Return the number in a cell, as `finite` does."""
        return finite(cell.replace(self.decimal, ".") if isinstance(cell, str) else cell)


class NumberTable(NamedTuple):
    """The numbers of a table (n, columns), the names of their columns and of those that are left out, and notes; `times` are
    the notes on the times of the rows, and `step` the median seconds between two of them, None if unknown."""

    values: Numbers
    names: tuple[str, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    step: float | None = None


def number_table(
    where: str, rows: Sequence[Sequence[Any]], names: tuple[str, ...] | None, first_row: int, how: NumberFormat
) -> NumberTable:
    """The numbers in rows of cells: texts, numbers or dates. `where` and `first_row`, the number of the first row, are for
    messages. Raises ValueError that names row and column if a cell has no number, or if the dates are not in order."""
    if not rows:
        raise ValueError(f"{where} holds no row of numbers")
    named, names = names or (), names or tuple(f"column {i}" for i in range(len(rows[0])))
    times, count = _time_columns(rows, named, how), _is_count(rows, named, how)
    chosen = _chosen(where, names, {*times, *([0] if count else [])}, how.columns)
    filled = list[tuple[int, int]]()
    if not chosen:
        raise ValueError(
            f"{where} has no column of numbers, only {', '.join(short(names))}; data.sep=comma, semicolon or tab says what "
            "separates its cells"
        )
    flags = {column for column in chosen if _is_flag(rows, column)}
    values = np.empty((len(rows), len(chosen)))  # in float64: only what is scaled fits float32
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"{where}, row {i + first_row}: {len(row)} cells, and {len(names)} in the first row")
        for j, column in enumerate(chosen):
            number = FLAGS.get(str(row[column]).strip().lower()) if column in flags else how.number(row[column])
            if number is None and (not how.fill_gaps or i == 0):
                place = f"{where}, row {i + first_row}, {names[column][:60]}"
                raise ValueError(f"{place}: {_no_number(row[column], how)}")
            if number is None:
                filled.append((i + first_row, column))
            values[i, j] = values[i - 1, j] if number is None else number
    _check_names([names[column] for column in chosen], where)
    joined = joined_times(rows, [names[i] for i in times], times)
    notes, step = _times(where, joined, first_row, how.date_format) if times else ((), None)
    left_out = tuple(names[column] for column in range(len(names)) if column not in chosen)
    gaps = _filled(rows, names, filled, first_row, values.size)
    return NumberTable(values, tuple(names[column] for column in chosen), (*notes, *gaps), left_out, notes, step)


def _filled(
    rows: Sequence[Sequence[Any]],
    names: tuple[str, ...],
    cells: Sequence[tuple[int, int]],
    first_row: int,
    count: int,
) -> tuple[str, ...]:
    """A note on the cells that have the number above them, by their rows and columns."""
    if not cells:
        return ()
    row, column = next((one for one in cells if not _is_empty(rows[one[0] - first_row][one[1]])), cells[0])
    cell = rows[row - first_row][column]
    example = "" if _is_empty(cell) else f": {str(cell).strip()[:40]!r}"
    have, which = ("has", ":") if len(cells) == 1 else ("have", ", for example")
    return (
        f"{len(cells):,} of {counted(count, 'cell')} {have} no number and repeat{'s' * (len(cells) == 1)} the value above "
        f"(data.gaps=fill){which} row {row:,}, {names[column][:60]}{example}",
    )


def _time_columns(rows: Sequence[Sequence[Any]], names: tuple[str, ...], how: NumberFormat) -> list[int]:
    """The columns with the times of the rows: the first if it isn't numbers, else one with a name such as `date`, else one
    of dates; with it one of clock times, or `month`, `day` and so on beside `year`."""
    parts = calendar_columns(names)
    if parts and how.date_format is None:
        return parts
    time = _time_column(rows, names, how)
    if time is None or how.date_format is not None:
        return [] if time is None else [time]
    clocks = (i for i, name in enumerate(names) if i != time and names_time(name) and is_clock(rows[0][i]))
    return [time, *([clock] if (clock := next(clocks, None)) is not None and not is_clock(rows[0][time]) else [])]


def _time_column(rows: Sequence[Sequence[Any]], names: tuple[str, ...], how: NumberFormat) -> int | None:
    filled = [next((cell for cell in column if not _is_empty(cell)), None) for column in zip(*rows, strict=False)]
    if how.date_format is not None or (filled and _is_time(filled[0], how)):
        return 0
    named = (i for i, name in enumerate(names) if names_time(name))
    dated = (i for i, cell in enumerate(filled) if is_date(cell) and how.number(cell) is None)
    return next(named, next(dated, None))


def _is_time(cell: Any, how: NumberFormat) -> bool:
    """Whether the first cell of the first column shows that it isn't one of numbers, with or without unusual marks."""
    if cell is None or how.number(cell) is not None:
        return False
    return is_date(cell) or (what_not(cell) == "number" and spelling(str(cell).strip()) is None)


def _is_flag(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Whether a column holds the texts true and false alone, and perhaps empty cells."""
    cells = (row[column] for row in rows if column < len(row))
    return all(isinstance(cell, str) and cell.strip().lower() in ("", *FLAGS) for cell in cells)


def _check_names(names: Sequence[str], where: str) -> None:
    """Raise ValueError if two columns have one name: scales and forecasts are kept by name."""
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(
            f"{where} has two columns {brief(twice)}; rename one of them, or choose one by its number, such as "
            "data.columns=[1]"
        )


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _is_count(rows: Sequence[Sequence[Any]], names: tuple[str, ...], how: NumberFormat) -> bool:
    """Whether the first column holds row numbers, such as the index of a data frame."""
    if (
        not names
        or names[0].strip().lower() not in ("", "index", "unnamed: 0", "no", "no.", "nr", "id", "row", "#")
        or len(names) < 2
    ):
        return False
    numbers = [how.number(row[0]) if row else None for row in rows]
    return numbers[0] in (0, 1) and all(number == numbers[0] + i for i, number in enumerate(numbers))


def _no_number(cell: Any, how: NumberFormat) -> str:
    text = str(cell)
    if how.decimal == "." and _COMMA_THOUSANDS.fullmatch(text.strip()):
        return (
            f"{text[:40]!r} is no number with a decimal point; remove the comma if it separates thousands, or read decimal "
            "commas by data.decimal=','"
        )
    if how.decimal == "." and _DECIMAL_COMMA.fullmatch(text.strip()):
        return f"{text[:40]!r} is no number with a decimal point; data.decimal=',' reads decimal commas"
    filled = "the first row needs a number" if how.fill_gaps else "data.gaps=fill repeats the value before it"
    return f"{text[:40]!r} is no {what_not(cell)}; {filled}, and data.columns chooses columns"


def _times(
    where: str, cells: list[Any], first_row: int, date_format: str | None
) -> tuple[tuple[str, ...], float | None]:
    try:
        return order(cells, first_row, date_format)
    except ValueError as error:
        raise ValueError(f"{where}, {error}") from None


def _chosen(where: str, names: tuple[str, ...], others: set[int], columns: tuple[str | int, ...] | None) -> list[int]:
    if columns is None:
        return [column for column in range(len(names)) if column not in others]
    for column in columns:
        if column not in names and not (isinstance(column, int) and 0 <= column < len(names)):
            raise ValueError(f"{where} has no column {brief(column)}; it has {', '.join(short(names))}")
    return [names.index(column) if column in names else int(column) for column in columns]
