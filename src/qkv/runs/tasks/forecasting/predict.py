"""Prediction of forecasting: the next values of the series in CSV files, in their units."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....core.spec import brief
from ....data.files.csv_dialect import written
from ....data.files.csv_header import short
from ....data.readers.time_series import Numbers, TimeSeries
from ....data.source import Source
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import predict_examples
from .metric import restored
from .task import Forecast

Values = NDArray[np.float64]


@Forecast.predicts
def predict(task: Forecast, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Make a `forecast` for each file."""
    yield from (forecast(task, trained, path) for path in paths)


def forecast(task: Forecast, trained: TrainedModel, path: str) -> Prediction:
    """Forecast the next values (horizon, columns) of a CSV, TSV, JSON Lines or Parquet file with one row per time step, the
    oldest first. Output file: the values as CSV.

    The file is read and scaled as the training data were (`columns`, `gaps`); a new column is scaled by its own history.
    Warns of new columns, and of rows at other distances than in training.

    Raises ValueError if the file is no such table, or shorter than the history that a forecast needs.
    """
    series, names = _read(task, trained.source, path)
    if len(series) < task.history:
        raise ValueError(f"{path} has {len(series):,} rows, and a forecast looks back on {task.history:,}; give more")
    past = series[-task.history :]
    center, spread = _scaling(task, path, names, past)
    scaled = ((past - center) / spread).astype(np.float32)
    examples = [{"history": scaled[:, j : j + 1], "names": (name,), "where": path} for j, name in enumerate(names)]
    forecasts = np.array(predict_examples(trained, task, examples, restored), np.float64)
    values: Values = forecasts.T * spread + center
    table = _table(names, values, spread)
    fields = {"columns": list(names), "values": values.tolist()}
    return Prediction(path, values, table, fields, Path(path).stem, lambda: {".forecast.csv": f"{table}\n".encode()})


def _read(task: Forecast, source: Source | None, path: str) -> tuple[Numbers, tuple[str, ...]]:
    if not Path(path).expanduser().is_file():
        raise ValueError(
            f"there is no file {brief(path)}; give a CSV, TSV, JSON Lines or Parquet file of numbers with one row a time"
        )
    try:
        reader = source.replace({"path": path}) if isinstance(source, TimeSeries) else TimeSeries(path=path)
        values, names = reader.values()
    except ValueError as error:
        if "data." not in str(error):
            raise
        raise ValueError(
            f"{error}; for a forecast such settings are given as --data gaps=fill (data=['gaps=fill'])"
        ) from None
    notes = list(reader.times())
    if (step := reader.step()) is not None and task.step is not None and not 0.9 < step / task.step < 1.1:
        apart, before = timedelta(seconds=step), timedelta(seconds=task.step)
        notes.append(
            f"its rows are {apart} apart, and those of the training {before}; it forecasts as if they were alike"
        )
    if task.columns and (new := [name for name in names if name not in task.columns]) and task.normalized:
        known = ", ".join(short(task.columns))
        notes.append(f"training had no column {', '.join(short(new))} (but {known}); each is scaled by its own history")
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    return values, names


def _scaling(task: Forecast, path: str, names: Sequence[str], past: Numbers) -> tuple[Numbers, Numbers]:
    """The values to subtract from each column and to divide it by."""
    known = dict(zip(task.columns, zip(task.center, task.spread, strict=True), strict=True))
    new = [name for name in names if name not in known]
    if new and not task.normalized:
        raise ValueError(
            f"{path} has a column {brief(new[0])}, and the run knows the scale of {', '.join(task.columns)}"
        )
    own = zip(past.mean(0).tolist(), past.std(0).tolist(), strict=True)
    pairs: Any = [known.get(name, (mean, deviation or 1.0)) for name, (mean, deviation) in zip(names, own, strict=True)]
    center, spread = np.array(pairs, np.float64).T
    return center, spread


def _table(names: Sequence[str], values: Values, spread: Numbers) -> str:
    """Format values as CSV, to six significant digits, more for columns whose values are large beside their `spread`."""
    largest = np.abs(values).max(0, initial=0) / spread
    digits = [6 + max(0, math.ceil(math.log10(ratio))) if 0 < ratio < math.inf else 6 for ratio in largest.tolist()]
    rows = ([f"{value:.{n}g}" for value, n in zip(row, digits, strict=True)] for row in values.tolist())
    return written([names, *rows]).rstrip("\n")
