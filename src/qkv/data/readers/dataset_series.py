"""Time series from Hugging Face datasets: a row per time, numbers in columns."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..files.number_tables import NumberFormat, Numbers, NumberTable, number_table
from .hub_datasets import Datasets, part_of
from .time_series import SeriesSource


class DatasetSeries(SeriesSource, kind="dataset-series"):
    """A split of a dataset with one row per time, oldest first, read through the `datasets` library: a name on the Hub, a
    folder written by `save_to_disk`, or a folder of Parquet, CSV or JSONL files.

    path, name, revision: the dataset, its configuration and version, as for the source `datasets`.
    split:   the split that holds the series, or a slice such as `train[:1000]`; `shares` divides it.
    columns: the columns to read, by name or number from 0; by default all but the times of the rows.
    gaps:    for cells without a number: "raise" an error, or "fill" them with the last value.

    The whole split is read, since values are standardized by the mean and deviation of all training rows. Raises ValueError
    if the library is missing.
    """

    on_hub: ClassVar[bool] = True

    path: str | None = None
    name: str | None = None
    revision: str | None = None
    split: str = "train"
    columns: tuple[str | int, ...] | None = None
    gaps: Literal["raise", "fill"] = "raise"

    def values(self) -> tuple[Numbers, tuple[str, ...]]:
        return self._table()[:2]

    def notes(self) -> tuple[str, ...]:
        return self.described(self._table())

    def _table(self) -> NumberTable:
        dataset = Datasets(path=self.path, name=self.name, revision=self.revision)
        data = part_of(dataset, self.split)
        names = tuple(data.column_names)
        rows = list(zip(*(data[name] for name in names), strict=True))
        return number_table(
            f"{self.path}, {self.split}", rows, names, 1, NumberFormat(self.columns, self.gaps == "fill")
        )
