"""An evaluation as people read it: a table of metrics, and outputs beside the truth."""

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
    from ..experiments.evaluate import Evaluated

_PERCENT = ("exact_match",)


def show_evaluation(result: Evaluated) -> None:
    show(result.to_dict())


def show_saved(path: Path) -> None:
    """The evaluation that a finished run has on disk."""
    from ..directories.layout import read_json

    show(read_json(path))


def show(result: Mapping[str, Any]) -> None:
    out = console()
    out.print(_metrics(result))
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
        how = [result["signatures"].get(name, "")]
        if name in result.get("counts", {}):
            how.insert(0, f"over {result['counts'][name]:,} examples")
        table.add_row(name.replace("_", " "), _number(name, value), f"[dim]{escape('; '.join(filter(None, how)))}[/]")
    return table


def _number(name: str, value: float | None) -> str:
    if value is None or not isfinite(value):  # a file says null
        return "not finite"
    return f"{value:.2%}" if name in _PERCENT else f"{value:.4g}" if abs(value) < 10 else f"{value:.2f}"


def _samples(samples: list[Mapping[str, Any]]) -> Table:
    table = Table(title="samples", title_justify="left", box=None)
    pairs = any(sample.get("target") is not None for sample in samples)
    for header in ("source", "output", "truth") if pairs else ("prompt", "output"):
        table.add_column(header, overflow="fold")
    for sample in samples:
        cells = [escape(sample["source"]), escape(sample["output"])]
        if pairs:
            right = sample["target"] == sample["output"]
            cells.append("[green]the same[/]" if right else escape(sample["target"]))
        table.add_row(*cells)
    return table
