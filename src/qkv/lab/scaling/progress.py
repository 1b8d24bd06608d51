"""The live table of a scaling study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ...look.svg import readable
from .ladder import Rung
from .runs import Outcome, steps_done


@contextmanager
def shown(rungs: Sequence[Rung], outcomes: Mapping[str, Outcome], out: Path, console: Console) -> Iterator[None]:
    """Show the runs in a table that follows their logs, if the console is a terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(
        get_renderable=lambda: table(rungs, dict(outcomes), out),
        console=console,
        refresh_per_second=0.5,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def table(rungs: Sequence[Rung], outcomes: Mapping[str, Outcome], out: Path | None = None) -> Table:
    """The runs with their sizes, budgets and outcomes; `out` tells how far those go that have not ended."""
    columns = Table(box=None, pad_edge=False)
    columns.add_column("run")
    for header in ("parameters", "tokens", "FLOPs", "steps", "lr", "loss"):
        columns.add_column(header, justify="right")
    for rung in rungs:
        values = [readable(rung.parameters), readable(rung.tokens), f"{rung.flops:.2e}", f"{rung.steps:,}"]
        columns.add_row(rung.name, *values, f"{rung.lr:.2e}", _state(rung, outcomes.get(rung.name), out))
    return columns


def _state(rung: Rung, outcome: Outcome | None, out: Path | None) -> str:
    if outcome is not None:
        return "diverged" if outcome.diverged else f"{outcome.loss:.4f}"
    steps = 0 if out is None else steps_done(out / rung.name)
    return f"{steps / rung.steps:.0%}" if steps else ""
