"""Show the runs of an ablation while they are trained: a table in a terminal, else a line for each run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...core.metrics.display import display_of
from ...io.directories.layout import METRICS
from ...look.formatting import shown
from ...look.output_diff import duration
from ..studies.live_table import LiveTable
from .ablation import Ablation
from .single_run import RunResult
from .summary import Spread
from .tables import with_deviation

_TAIL = 4096  # bytes of a log that hold its last line
_COLUMNS = 3  # metrics, besides the loss in training
_NARROW = 100  # columns of a terminal with room for one metric only


class AblationProgress(LiveTable):
    """A context in which a table shows each variant: finished runs, means of their metrics, and the run in training."""

    def __init__(
        self, ablation: Ablation, results: Mapping[tuple[str, int], RunResult], console: Console, jobs: int = 1
    ) -> None:
        super().__init__(console)
        self.ablation, self.results, self.jobs = ablation, results, jobs
        self.began: dict[tuple[str, int], float] = {}
        self.took: list[float] = []  # seconds of the runs that ended here
        self.metric = ablation.variant(ablation.baseline).training.metric
        self.running: dict[tuple[str, int], Path] = {}

    def begin(self, run: tuple[str, int], folder: Path) -> None:
        self.running[run], self.began[run] = folder, time.monotonic()

    def done(self, run: tuple[str, int], result: RunResult) -> None:
        self.running.pop(run, None)
        self.took.append(time.monotonic() - self.began.pop(run, time.monotonic()))
        label, number = self.ablation.variants[run[0]].label, f"{len(self.results)}/{len(self.ablation.runs)}"
        names = self._first(result.metrics)
        metrics = [f"{display_of(name).title} {shown(name, result.metrics[name])}" for name in names]
        self.line(f"{number} {label}, seed {run[1]}: {', '.join(metrics) or result.status}{self._left('; ')}")

    def table(self) -> Table:
        """Return the current table."""
        results = dict(self.results)  # another thread may add to it
        names = self._first(name for result in results.values() for name in result.metrics)
        names = names[:1] if self.console.width < _NARROW else names
        table = Table(box=None, caption=self._left() or None, caption_justify="left")
        for column in ("variant", "runs", *(display_of(name).title for name in names), "now"):
            words = column in ("variant", "now")
            table.add_column(column, overflow="fold", justify="left" if words else "right", no_wrap=not words)
        for name, variant in self.ablation.variants.items():
            runs = [results[name, seed] for seed in self.ablation.seeds if (name, seed) in results]
            cells = [with_deviation(m, _spread(m, runs)) for m in names]
            table.add_row(
                escape(variant.label), f"{len(runs)}/{len(self.ablation.seeds)}", *cells, self._now(name, runs)
            )
        return table

    def _first(self, names: Iterable[str]) -> list[str]:
        """The first metrics, the recipe's `training.metric` before the others."""
        return sorted(dict.fromkeys(names), key=lambda name: name != self.metric)[:_COLUMNS]

    def _left(self, before: str = "") -> str:
        """How long the remaining runs will take, estimated from finished ones; empty if that is unknown."""
        left = len(self.ablation.runs) - len(self.results)
        if not self.took or left <= 0:
            return ""
        return f"{before}about {duration(sum(self.took) / len(self.took) * left / self.jobs)} left"

    def _now(self, variant: str, runs: list[RunResult]) -> str:
        parts = []
        for (name, seed), folder in list(self.running.items()):
            if name == variant:
                last = _last_line(folder / METRICS)
                where = f"step {last['step']:,}, loss {_number(last.get('loss'))}" if "step" in last else "starting"
                parts.append(f"seed {seed}: {where}")
        diverged = sum(run.status == "diverged" for run in runs)
        return "; ".join([*parts, *([f"{diverged} diverged"] if diverged else [])])


def _spread(metric: str, runs: list[RunResult]) -> Spread | None:
    values = {i: run.metrics[metric] for i, run in enumerate(runs) if metric in run.metrics}
    return Spread.of(values) if values else None


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else str(value or "–")


def _last_line(path: Path) -> dict[str, Any]:
    """The last training line of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("type") == "train":
            return record
    return {}
