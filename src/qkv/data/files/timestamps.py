"""Checks that the timestamps of a time series are in order and evenly spaced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

_BACK = 3 * 3600  # seconds; local clocks go back by an hour in autumn
_MORE = 1.5  # median steps: months differ in length


def leaps(cells: Sequence[str], first_row: int) -> tuple[str, ...]:
    """A note if some rows do not follow the previous row by the median step. None if all do, or if cells are not ISO dates.

    Raises ValueError if time goes backwards, as in files with the newest row first, or with one series below another.
    """
    try:
        times = [datetime.fromisoformat(cell.strip()) for cell in cells]
        seconds = np.array([(after - before).total_seconds() for before, after in pairwise(times)])
    except (ValueError, TypeError):  # no dates, or only some with a time zone
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
