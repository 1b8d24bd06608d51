"""A live table in a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from qkv.lab.studies.live_table import LiveTable


class Runs(LiveTable):
    def table(self) -> Table:
        table = Table("run")
        table.add_row("first")
        return table


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_where_there_is_no_terminal(terminal: bool) -> None:
    file = io.StringIO()
    with Runs(Console(file=file, force_terminal=terminal, width=40)) as runs:
        runs.line("1/2 [a]: done")
    assert ("first" in file.getvalue()) is terminal
    assert ("1/2 [a]: done" in file.getvalue()) is not terminal
