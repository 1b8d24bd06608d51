"""Runs the pages of docs/tour and writes what they print and draw into them: `.venv/bin/python docs/tour.py [PAGE …]`.

Each ```python block of a page is a cell; the cells of a page share their names. A ```text block after a cell is its output.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from qkv.learn.tour.pages import CELL, Page, pages, run

TOUR = Path(__file__).parent / "tour"


def renew(page: Page) -> None:
    """Run a page, and write its outputs and its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(list(run(page, Path(folder))))
        for picture in Path(folder).iterdir():
            shutil.copy(picture, TOUR)

    def with_output(cell: re.Match[str]) -> str:
        output = next(printed)
        return f"```python\n{cell[1]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    page.path.write_text(CELL.sub(with_output, page.text), encoding="utf-8")


if __name__ == "__main__":
    for page in pages():
        if not sys.argv[1:] or page.name in sys.argv[1:]:
            renew(page)
