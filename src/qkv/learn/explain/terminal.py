"""Print an explanation in a terminal: tables are cut to its width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from .explanation import Explanation
from .steps import LabeledTable, Step

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table as Grid

INDENT = (0, 0, 0, 3)
GAP = 4  # between tables side by side


def show(explanation: Explanation, console: Console) -> None:
    """Print every step."""
    from rich.text import Text

    console.print(Text(explanation.title, style="bold"))
    console.print(Text(explanation.about, style="dim"))
    for number, step in enumerate(explanation.steps, start=1):
        console.print()
        console.print(Text(f"{number}  {step.title}", style="bold blue"))
        _step(step, console)


def _step(step: Step, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    parts = [(step.text, ""), (step.equation, "cyan"), *((line, "") for line in step.lines)]
    for text, style in parts:
        if text:
            console.print(Padding(Text(text, style=style), INDENT))
    for row in _side_by_side([_drawn(table, console.width - INDENT[3]) for table in step.tables], console):
        console.print()
        console.print(Padding(row, INDENT))


def _drawn(table: LabeledTable, width: int) -> Group:
    """A table with its caption above and its note below."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    table = fitting(table, width)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("", style="bold", no_wrap=True)
    for i, column in enumerate(table.columns):
        words = all(isinstance(row[i], str | None) for row in table.values)
        grid.add_column(Text(column), justify="left" if words else "right", no_wrap=not words)
    for label, texts, values in zip(table.rows, table.texts(), table.values, strict=True):
        largest = max((v for v in values if isinstance(v, float)), default=0.0)
        cells = [
            Text(text, style="bold" if table.shaded and value == largest and largest > 0 else "")
            for text, value in zip(texts, values, strict=True)
        ]
        grid.add_row(Text(label), *cells)
    notes = [Text(table.note, style="dim")] if table.note else []
    return Group(Text(table.caption, style="italic"), grid, *notes)


def _side_by_side(groups: list[Group], console: Console) -> Iterator[Grid]:
    """Rows of tables that fit beside each other."""
    from rich.measure import Measurement

    row: list[Group] = []
    used = INDENT[3]
    for group in groups:
        width = Measurement.get(console, console.options, group).maximum + GAP
        if row and used + width > console.width:
            yield _row(row)
            row, used = [], INDENT[3]
        row.append(group)
        used += width
    if row:
        yield _row(row)


def _row(groups: list[Group]) -> Grid:
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, GAP, 0, 0))
    grid.add_row(*groups)
    return grid


def fitting(table: LabeledTable, width: int) -> LabeledTable:
    """The table with as many columns as fit into `width` characters, and a note that says so."""
    from rich.cells import cell_len

    texts = table.texts()
    left = max((cell_len(row) for row in table.rows), default=0)
    widths = []
    for c, column in enumerate(table.columns):
        words = any(isinstance(row[c], str) for row in table.values)
        longest = max((cell_len(row[c]) for row in texts), default=0)
        widths.append(2 + max(cell_len(column), min(longest, 24) if words else longest))
    kept = len(widths)
    while kept > 1 and left + sum(widths[:kept]) > width:
        kept -= 1
    if kept == len(widths):
        return table
    note = f"This terminal has room for {kept} of {len(widths)} columns; --out writes a page with the others."
    return replace(
        table,
        columns=table.columns[:kept],
        values=tuple(row[:kept] for row in table.values),
        note=f"{table.note} {note}".strip(),
    )
