"""Print an evaluation: a table of metrics, and sample outputs beside their references."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ..look.formatting import taken
from .say import console

if TYPE_CHECKING:
    from ..runs.evaluate.evaluate import Evaluated
    from ..runs.leaderboards.tasks import TaskScores

_PERCENT = ("exact_match",)


def show_evaluation(result: Evaluated) -> None:
    show(result.to_dict())


def show_tasks(result: TaskScores) -> None:
    """Print a table of tasks and metrics."""
    out = console()
    table = Table(title=f"{result.library}, {result.seconds:.1f} s", title_justify="left", box=None)
    for name in ("task", "metric", "value", "± standard error", "shots", "examples", "version"):
        table.add_column(name, justify="left" if name in ("task", "metric") else "right")
    for one in result.scores:
        metric = f"{one.metric} ({one.filter})" if one.filter else one.metric
        numbers = ["" if x is None else f"{x:,}" for x in (one.n_shot, one.examples)]
        error = "" if one.stderr is None else f"{one.stderr:.4f}"
        table.add_row(escape(one.task), escape(metric), f"{one.value:.4f}", error, *numbers, escape(one.version))
    out.print(table)
    for note in result.notes:
        out.print(note, markup=False, highlight=False)


def show_saved(path: Path) -> None:
    """Print the evaluation that a finished run has on disk."""
    from ..io.directories.layout import read_json

    show(read_json(path))


def show(result: Mapping[str, Any]) -> None:
    out = console()
    out.print(_metrics(result))
    if result.get("baselines"):
        out.print(_baselines(result))
    if result["samples"]:
        out.print(_samples(result["samples"]))
    for note in result["notes"]:
        out.print(note, markup=False, highlight=False)


def _metrics(result: Mapping[str, Any]) -> Table:
    title = f"{result['split']}, {taken(result)}, {result['seconds']:.1f} s"
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    for overflow in ("ellipsis", "ellipsis", "fold"):
        table.add_column(overflow=overflow)
    for name, value in result["metrics"].items():
        details = [result["signatures"].get(name, "")]
        if name in result.get("counts", {}):
            details.insert(0, f"over {result['counts'][name]:,} examples")
        note = escape("; ".join(filter(None, details)))
        table.add_row(name.replace("_", " "), _number(name, value), f"[dim]{note}[/]")
    return table


def _baselines(result: Mapping[str, Any]) -> Table:
    """The model's metrics above the metrics of simple methods on the same examples."""
    named = {name for row in result["baselines"] for name in row["metrics"]}
    metrics = [name for name in result["metrics"] if name in named]
    table = Table(title="beside simple methods, on the same examples", title_justify="left", box=None)
    for heading in ("", *(name.replace("_", " ") for name in metrics), ""):
        table.add_column(heading, justify="right" if heading else "left")
    for row in ({"name": "this model", "metrics": result["metrics"], "about": ""}, *result["baselines"]):
        values = (_number(name, row["metrics"][name]) if name in row["metrics"] else "" for name in metrics)
        table.add_row(row["name"], *values, f"[dim]{escape(row['about'])}[/]")
    return table


def _number(name: str, value: float | None) -> str:
    if value is None or not isfinite(value):  # None from a file's null
        return "not finite"
    return f"{value:.2%}" if name in _PERCENT else f"{value:.4g}" if abs(value) < 10 else f"{value:.2f}"


def _samples(samples: list[Mapping[str, Any]]) -> Table:
    table = Table(title="samples", title_justify="left", box=None)
    inputs = any(sample.get("source") is not None for sample in samples)  # optional in the samples of a metric
    targets = any(sample.get("target") is not None for sample in samples)
    for header, present in (("source" if targets else "prompt", inputs), ("output", True), ("reference", targets)):
        if present:
            table.add_column(header, overflow="fold")
    for sample in samples:
        source, output, target = (str(sample.get(key) or "") for key in ("source", "output", "target"))
        cells = [escape(source), escape(output)] if inputs else [escape(output)]
        if targets:
            cells.append("[green]the same[/]" if target == output else escape(target))
        table.add_row(*cells)
    return table
