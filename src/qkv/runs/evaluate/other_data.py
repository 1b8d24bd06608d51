"""Other data than a run's own in its evaluation: which part of them is evaluated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.spec import brief
from ...data.files.csv_header import short
from ...data.holdout import HoldOutSource
from ...data.readers.time_series import SeriesSource
from ...data.source import Source, Split, Table, new_notes
from ...data.task import Task
from ..tasks.forecasting.task import Forecast


class ScaledSeries(Source, kind="scaled-series"):
    """A series that is scaled by the statistics of other data: (x − center) / spread for each column."""

    series: Source
    center: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def fixed(self) -> bool:
        return True

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        assert isinstance(self.series, SeriesSource)
        return self.series.windows(split, np.array(self.center), np.array(self.spread))

    def notes(self) -> tuple[str, ...]:
        return self.series.notes()


def as_trained(source: Source, task: Task | None) -> Source:
    """A source for the evaluation of a trained `task`: the columns of a series are scaled by the mean and deviation of the
    training data, which the task keeps, and a column that these lack by its own.

    Raises ValueError if there is such a column and the task does not scale each history by itself.
    """
    if not isinstance(source, SeriesSource) or not isinstance(task, Forecast) or not task.columns:
        return source
    names, new = source.values()[1], _new_columns(source, task)
    if new and not task.normalized:
        raise ValueError(
            f"the data have a column {brief(new[0])}, and the run knows only the scale of {_some(task.columns)}; remove it"
        )
    own = dict(zip(names, zip(*(one.tolist() for one in source.scaling()), strict=True), strict=True))
    known = dict(zip(task.columns, zip(task.center, task.spread, strict=True), strict=True))
    center, spread = zip(*((own | known)[name] for name in names), strict=True)
    return ScaledSeries(series=source, center=center, spread=spread)


def _new_columns(source: SeriesSource, task: Forecast) -> list[str]:
    return [name for name in source.values()[1] if name not in task.columns]


def _some(names: Sequence[str]) -> str:
    return ", ".join(short(names))


def check_changed(source: Source, split: Split, changes: Sequence[str]) -> None:
    """Raise ValueError if the settings of the data in `changes` name other training files, but `split` has its own files:
    these would be evaluated, whatever the training files are."""
    changed = {item.removeprefix("data.").partition("=")[0] for item in changes}
    for name in sorted(changed):
        own = f"{split}_{name}"
        value = getattr(source, own, None) if own in type(source).model_fields else None
        if own not in changed and value is not None:
            raise ValueError(
                f"the {split} split is read from data.{own}, {brief(value)}, and {name} changes the training data alone; to "
                f"evaluate another file, give {own}=FILE in place of {name}=FILE"
            )


def notes_on_other(source: Source, trained: Source, split: Split, task: Task | None = None) -> list[str]:
    """Notes on a source in place of the one that a run was `trained` on, by a `task`: which part is evaluated, how a series
    is scaled, and its own notes."""
    return [*_part(source, trained, split, task), *new_notes(source, trained)]


def _part(source: Source, trained: Source, split: Split, task: Task | None) -> list[str]:
    """A note if only a part of other data is evaluated."""
    if source == trained:
        return []
    if isinstance(source, SeriesSource):
        return [f"Data: {_rows(split)} of this series are evaluated; {_scale(source, task)}."]
    if split == "train":
        return []
    if not isinstance(source, HoldOutSource) or source.gives(split):
        return []
    own = f"{split}_path"
    whole = f"; {own}=FILE evaluates all of a file" if own in type(source).model_fields else ""
    return [f"Data: only the part that is held out for {split} is evaluated{whole}."]


def _rows(split: Split) -> str:
    return {"train": "the first rows", "validation": "the rows of the validation split", "test": "the last rows"}[split]


def _scale(source: SeriesSource, task: Task | None) -> str:
    """How the columns of a series are scaled."""
    of_its_own = "by the mean and standard deviation of its own training split"
    if not isinstance(task, Forecast) or not task.columns:
        return f"its columns are scaled {of_its_own}"
    said = "its columns are scaled by the mean and standard deviation of the run's training data"
    new = _new_columns(source, task)
    return f"{said}, and {_some(new)}, which these lack, {of_its_own}" if new else said
