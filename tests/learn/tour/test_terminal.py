"""A page is walked through in the terminal: its code runs, and what it prints is shown."""

from __future__ import annotations

import io

from rich.console import Console

from qkv.learn.tour.pages import CodeCell, find
from qkv.learn.tour.terminal import walk


def test_walking_a_page() -> None:
    output, waits = io.StringIO(), []
    page = find("attention")
    walk(page, Console(file=output, width=100), lambda: waits.append(1))
    shown = output.getvalue()
    cells = [part for part in page.parts() if isinstance(part, CodeCell)]
    assert len(waits) == len(cells) > 2
    for cell in cells:
        for line in cell.output.splitlines():
            assert line.strip() in shown


def test_long_lines_of_code_are_wrapped() -> None:
    output, page = io.StringIO(), find("dictionary")
    walk(page, Console(file=output, width=60))
    shown = "".join(output.getvalue().split())
    assert all("".join(part.code.split()) in shown for part in page.parts() if isinstance(part, CodeCell))
