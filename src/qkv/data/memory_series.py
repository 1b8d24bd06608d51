"""`MemorySeries`: a time series passed from Python as a data frame, an array or rows, without a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field, PrivateAttr

from .files.number_tables import NumberFormat, Numbers, NumberTable, number_table
from .memory import records
from .readers.time_series import SeriesSource


class _Values:
    """The numbers of a series, its columns, and notes on its dates."""

    def __init__(self, table: NumberTable) -> None:
        self.table = table
        values, names = table.values, table.names
        digest = hashlib.sha256(np.ascontiguousarray(values).tobytes())
        digest.update("\0".join(names).encode())
        self.fingerprint = digest.hexdigest()


_known: WeakValueDictionary[str, _Values] = WeakValueDictionary()
"""The series in use in this process, by fingerprint, so a recipe read from a run directory finds its data."""


class MemorySeries(SeriesSource, kind="memory-series"):
    """A time series in memory, see `MemorySeries.of`.

    A recipe or a run directory has only its fingerprint and length. To use the data again, pass the same series again.
    """

    fingerprint: str
    length: int = Field(ge=1)

    _values: _Values | None = PrivateAttr(None)

    def model_post_init(self, context: object) -> None:
        self._values = _known.get(self.fingerprint)

    @classmethod
    def of(cls, rows: Any, **settings: Any) -> MemorySeries:
        """Make a source of a table with one row per time, oldest first, and numbers in columns.

        rows:     a pandas or polars data frame, a `datasets.Dataset`, an array, or a list of rows. The order of dates in the
                  first column, or in the index of a pandas frame, is checked; dates are not forecast.
        settings: as in `SeriesSource`.

        Raises ValueError if a cell has no number, or if the rows are not in order.
        """
        if type(getattr(rows, "index", None)).__name__ == "DatetimeIndex":
            rows = rows.reset_index()
        table = records(rows)
        first = table[0] if len(table) else None
        names = tuple(map(str, first)) if isinstance(first, Mapping) else None
        cells = [list(row.values()) if isinstance(row, Mapping) else list(np.atleast_1d(row)) for row in table]
        held = _Values(number_table("the data", cells, names, 0, NumberFormat()))
        known = _known.setdefault(held.fingerprint, held)
        return cls(fingerprint=known.fingerprint, length=len(cells), **settings)

    def values(self) -> tuple[Numbers, tuple[str, ...]]:
        return self._held().table[:2]

    def notes(self) -> tuple[str, ...]:
        return self.described(self._held().table)

    def _held(self) -> _Values:
        held = self._values or _known.get(self.fingerprint)
        if held is None:
            raise ValueError(
                f"the series of this run ({self.length:,} rows, fingerprint {self.fingerprint[:8]}) was passed from Python "
                "and is not stored in it; pass the same series again (qkv.train(RECIPE, RUN, data=frame, resume=True)), or "
                "name a file with data.kind=series and data.path"
            )
        return held
