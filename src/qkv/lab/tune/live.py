"""Show the trials of a tuning while they are trained: a table in a terminal, else a line for each trial."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...core.metrics.display import display_of
from ...look.formatting import shown
from ...look.output_diff import duration
from ..studies.live_table import LiveTable
from .summary import TrialRow, best_of

_ROWS = 15  # trials in the table, the latest ones


class TuningProgress(LiveTable):
    """A context in which a table shows the latest trials, the best one, and the time that is left."""

    def __init__(self, metric: str, mode: str, trials: int, console: Console) -> None:
        super().__init__(console)
        self.metric, self.mode, self.trials = metric, mode, trials
        self.rows: list[TrialRow] = []
        self.running: dict[int, dict[str, str]] = {}
        self.began = time.monotonic()
        self.ended = 0  # trials that ended here

    def begin(self, number: int, settings: dict[str, str]) -> None:
        self.running[number] = settings

    def done(self, row: TrialRow) -> None:
        self.running.pop(row.number, None)
        self.rows.append(row)
        self.ended += 1
        what = f"trial {row.number}: {said(row.settings)}: {self.outcome(row)}"
        self.line(f"{len(self.rows)}/{self.trials} {what}{self._left()}")

    def outcome(self, row: TrialRow) -> str:
        """What became of a trial, in words."""
        one = row.result
        value = "" if one.value is None else f"{display_of(self.metric).title} {shown(self.metric, one.value)}"
        if one.status == "finished":
            return value
        if one.status == "failed":
            return f"not possible: {one.message}"
        return f"{one.status} after step {one.steps:,}" + (f", {value}" if value else "")

    def table(self) -> Table:
        """Return the current table."""
        rows = list(self.rows)
        best = best_of(rows, self.mode)
        caption = f"{len(rows)} of {self.trials} trials{self._left()}"
        table = Table(box=None, caption=caption, caption_justify="left")
        for column in ("trial", "settings", "result"):
            table.add_column(column, overflow="fold")
        for row in rows[-_ROWS:]:
            mark = " (best)" if best is row else ""
            table.add_row(str(row.number), escape(said(row.settings)), escape(self.outcome(row) + mark))
        for number, settings in list(self.running.items()):
            table.add_row(str(number), escape(said(settings)), "in training")
        return table

    def _left(self) -> str:
        left = self.trials - len(self.rows)
        if not self.ended or left <= 0:
            return ""
        return f"; about {duration((time.monotonic() - self.began) / self.ended * left)} left"


def said(settings: dict[str, str]) -> str:
    """Settings with the last part of each key."""
    return ", ".join(f"{key.split('.')[-1]}={value}" for key, value in settings.items())
