"""Times of the rows of a series, dates in many formats or numbers, checked to be in order and evenly spaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from ...core.spec import brief

_BACK = 3 * 3600  # seconds; local clocks go back by an hour in autumn
_MORE = 1.5  # median steps: months differ in length
_FIRST = 20  # cells that show the format

_NAMES = frozenset(
    "date datetime time timestamp year epoch unix unixtime utc ts ds datum zeit zeitstempel jahr fecha".split()  # noqa: SIM905
)
_BESIDE = frozenset({"utc", "gmt", "local", "unix", "s", "ms", "us", "ns", "sec", "seconds", "of", "the"})
_DATES = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%Y%m%d", "%Y.%m.%d", "%Y-%m-%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y", "%Y-%m", "%Y/%m", "%m/%Y", "%m.%Y"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", " %H", "T%H:%M", "T%H:%M:%S")
_QUARTER = re.compile(r"\s*(?:(\d{4})[-\s]?Q([1-4])|Q([1-4])[-\s](\d{4}))\s*")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(\s?[AaPp][Mm])?")
_ZONE = re.compile(r"(?<=\d)\s*(?:UTC|GMT)$")
_CALENDAR = ("year", "month", "day", "hour", "minute", "second")
_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))
"""From which number on a time counts units since 1970, and the unit in seconds."""


def names_time(name: str) -> bool:
    """Whether a column with this name holds the times of its rows, such as `date`, `Timestamp` or `unix_time`."""
    words = re.findall(r"[^\W\d_]+", name.casefold())
    return any(word in _NAMES for word in words) and all(word in _NAMES | _BESIDE for word in words)


def is_date(cell: object) -> bool:
    """Whether a cell is a date, or the text of one that is more than a number."""
    if isinstance(cell, date | np.datetime64):
        return True
    return isinstance(cell, str) and not cell.strip().isdecimal() and bool(_readings([cell]))


def are_dates(cells: Sequence[str]) -> bool:
    """Whether the first of these texts are dates in one format, and more than numbers."""
    readings = _readings(cells[:_FIRST]) if cells else []
    return bool(readings) and all(isinstance(times[0], datetime) for times in readings) and not cells[0].isdecimal()


def is_clock(cell: object) -> bool:
    """Whether a cell is a time of the day, such as 17:24:00."""
    return isinstance(cell, time) or (isinstance(cell, str) and _CLOCK.fullmatch(cell.strip()) is not None)


def calendar_columns(names: Sequence[str]) -> list[int]:
    """The columns `year`, `month` and perhaps `day`, `hour`, `minute` and `second`; none without the first two."""
    places = {name.strip().lower(): i for i, name in enumerate(names)}
    parts = list(takewhile(places.__contains__, _CALENDAR))
    return [places[part] for part in parts] if len(parts) > 1 else []


def joined_times(rows: Sequence[Sequence[Any]], names: Sequence[str], columns: Sequence[int]) -> list[Any]:
    """The time of each row: a cell, a date and a clock time, or a date from the cells of `calendar_columns`."""
    if len(columns) < 2:
        return [row[column] for row in rows for column in columns]
    if names[0].strip().lower() != _CALENDAR[0]:
        return [f"{str(row[columns[0]]).split(' 00:00:00')[0]} {row[columns[1]]}" for row in rows]
    made = (_all([row[i] for i in columns], lambda cell: int(float(cell))) for row in rows)
    try:
        return [datetime(*[*parts, 1, 1][: max(3, len(parts))]) for parts in made if parts is not None]
    except (ValueError, TypeError):
        return [" ".join(str(row[i]) for i in columns) for row in rows]


def leaps(cells: Sequence[Any], first_row: int, date_format: str | None = None) -> tuple[str, ...]:
    """A note if some rows do not follow the previous row by the median step, or if the order can't be told.

    Without a `date_format`, in the notation of `datetime.strptime`, the format is found: ISO 8601, other usual ones, or
    numbers, such as years or seconds since 1970. If days and months could be exchanged, the order of the rows decides.

    Raises ValueError if time goes backwards, as in files with the newest row first, or with one series below another, or
    if a cell is not in the `date_format`.
    """
    return order(cells, first_row, date_format)[0]


def order(cells: Sequence[Any], first_row: int, date_format: str | None = None) -> tuple[tuple[str, ...], float | None]:
    """The notes of `leaps`, and the median step in seconds, None if it is unknown."""
    if date_format is not None and not isinstance(cells[0], date | np.datetime64):
        readings = [list(_parsed([str(cell) for cell in cells], first_row, date_format))]
    else:
        readings = _readings(cells)
    if not readings:
        example = next((cell for cell in cells if not _readings([cell])), cells[0])
        note = (
            f"the order of the rows is not checked: {brief(str(example))} is no date in a format that is known "
            "(data.date_format gives it); the oldest row has to be first"
        )
        return (note,), None
    try:
        steps = [np.array([_seconds(after, before) for before, after in pairwise(times)]) for times in readings]
    except TypeError:
        return ("the order of the rows is not checked: only some of the times have a time zone",), None
    numbers = not isinstance(readings[0][0], datetime)
    kept = [one for one in steps if not (one < -_allowed(one, numbers)).any()]
    if not kept:
        back = int(np.flatnonzero(steps[0] < -_allowed(steps[0], numbers))[0])
        either = "" if len(steps) == 1 else ", whether days or months are first"
        raise ValueError(
            f"row {first_row + back + 1} is of {cells[back + 1]}, before the row above it ({cells[back]}){either}; sort the "
            "rows from the oldest to the newest, and put several series into columns"
        )
    best = min(kept, key=lambda one: len(_odd(one)))
    unit = _unit(readings[0]) if numbers else 1.0
    usual = float(np.median(best)) if len(best) else 0.0
    return _uneven(best, len(cells), first_row, unit), usual * unit if unit and usual else None


def _allowed(steps: np.ndarray, numbers: bool) -> float:
    """The seconds by which time may go back."""
    return _BACK if not numbers and (steps >= 0).any() else 0


def _odd(steps: np.ndarray) -> np.ndarray:
    """The steps that are longer or shorter than usual: rows left out, rows given twice, and clocks that go back."""
    usual = float(np.median(steps)) if len(steps) else 0.0
    return np.flatnonzero((steps > _MORE * usual) | (_MORE * steps < usual))


def _uneven(steps: np.ndarray, rows: int, first_row: int, unit: float | None) -> tuple[str, ...]:
    """A note on odd steps. `unit` is the seconds of a step of 1; None for numbers without a unit."""
    odd, usual = _odd(steps), float(np.median(steps)) if len(steps) else 0.0
    if len(steps) and not usual:
        return (
            f"{rows - 1 - len(odd):,} of {rows:,} rows have the time of the row before, and are read as if they did not",
        )
    if not len(odd):
        return ()
    come = "comes" if len(odd) == 1 else "come"
    where = f"row {first_row + odd[0] + 1:,}" + (" alone" if len(odd) == 1 else " is the first")
    step = f"{usual:g}" if unit is None else timedelta(seconds=usual * unit)
    return (
        f"{len(odd):,} of {rows:,} rows {come} at another time than {step} after the one before ({where}), and "
        f"{'is' if len(odd) == 1 else 'are'} read as if {'it' if len(odd) == 1 else 'they'} did not",
    )


def _seconds(after: Any, before: Any) -> float:
    step = after - before
    return step.total_seconds() if isinstance(step, timedelta) else float(step)


def _unit(numbers: Sequence[Any]) -> float | None:
    """The seconds of a step of 1, if numbers count the time since 1970."""
    return next((unit for least, unit in _UNITS if min(numbers) >= least), None)


def _readings(cells: Sequence[Any]) -> list[list[Any]]:
    """The times of all cells: one list, two if days and months could be exchanged, none if the format is unknown."""
    texts = [_ZONE.sub("", _iso_quarter(str(cell).strip())) for cell in cells]
    if (times := _all(texts, datetime.fromisoformat)) is not None and not all(text.isdecimal() for text in texts):
        return [times]
    days = all(len(text) == 8 and text[:2] in ("18", "19", "20") for text in texts)
    if (numbers := _all(texts, _number)) is not None and not days:
        return [numbers]
    first, found = texts[:_FIRST], []
    for form in (f"{day}{clock}" for day in _DATES for clock in _CLOCKS):
        if _all(first, lambda text, form=form: datetime.strptime(text, form)) is None:
            continue
        if (times := _all(texts, lambda text, form=form: datetime.strptime(text, form))) is not None:
            found.append(times)
    unlike = [times for i, times in enumerate(found) if times not in found[:i]]
    return unlike or ([] if numbers is None else [numbers])


def _iso_quarter(text: str) -> str:
    """Return the first day of a quarter, such as 2024Q3, as an ISO date; return any other text unchanged."""
    if (match := _QUARTER.fullmatch(text)) is None:
        return text
    year, quarter = (match[1], match[2]) if match[1] else (match[4], match[3])
    return f"{year}-{3 * int(quarter) - 2:02}-01"


def _number(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value


def _all(texts: Sequence[str], parse: Any) -> list[Any] | None:
    """All texts, parsed; None if one of them can't be."""
    try:
        return [parse(text) for text in texts]
    except ValueError:
        return None


def _parsed(cells: Sequence[str], first_row: int, date_format: str) -> Iterator[datetime]:
    for row, cell in enumerate(cells, first_row):
        try:
            yield datetime.strptime(cell.strip(), date_format)
        except ValueError:
            raise ValueError(
                f"row {row}: {cell[:40]!r} is not a date in the format {brief(date_format)} (data.date_format)"
            ) from None
