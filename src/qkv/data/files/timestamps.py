"""Checks that the timestamps of a time series are in order and evenly spaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from ...core.spec import brief

_BACK = 3 * 3600  # seconds; local clocks go back by an hour in autumn
_MORE = 1.5  # median steps: months differ in length


def leaps(cells: Sequence[str], first_row: int, date_format: str | None = None) -> tuple[str, ...]:
    """A note if some rows do not follow the previous row by the median step. None if all do, or if cells are not ISO dates.
    With a `date_format`, in the notation of `datetime.strptime`, all cells have to be dates of that format.

    Raises ValueError if time goes backwards, as in files with the newest row first, or with one series below another.
    """
    try:
        if date_format is None:
            times = [datetime.fromisoformat(cell.strip()) for cell in cells]
        else:
            times = list(_parsed(cells, first_row, date_format))
    except ValueError:
        if date_format is None:
            return ()
        raise
    try:
        seconds = np.array([(after - before).total_seconds() for before, after in pairwise(times)])
    except TypeError:  # only some with a time zone
        return ()
    most = _BACK if (seconds >= 0).any() else 0
    backwards = np.flatnonzero(seconds < -most)
    if len(backwards):
        back = int(backwards[0])
        raise ValueError(
            f"row {first_row + back + 1} is of {cells[back + 1]}, before the row above it ({cells[back]}); sort the rows "
            "from the oldest to the newest, and put several series into columns"
        )
    usual = float(np.median(seconds)) if len(seconds) else 0.0
    odd = np.flatnonzero((seconds > _MORE * usual) | (seconds < 0))
    if not len(odd):
        return ()
    where = f"row {first_row + odd[0] + 1:,}" + (" alone" if len(odd) == 1 else ", is the first")
    return (
        f"{len(odd):,} of {len(cells):,} rows come at another time than {timedelta(seconds=usual)} after the one before "
        f"({where}), and are read as if they did not",
    )


def _parsed(cells: Sequence[str], first_row: int, date_format: str) -> Iterator[datetime]:
    for row, cell in enumerate(cells, first_row):
        try:
            yield datetime.strptime(cell.strip(), date_format)
        except ValueError:
            raise ValueError(
                f"row {row}: {cell[:40]!r} is not a date in the format {brief(date_format)} (data.date_format)"
            ) from None
