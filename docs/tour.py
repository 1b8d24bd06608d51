"""Runs the pages of docs/tour and writes what they print and draw into them: `.venv/bin/python docs/tour.py [PAGE …]`.

Each ```python block of a page is a cell; the cells of a page share their names. A ```text block after a cell is its output.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path

TOUR = Path(__file__).parent / "tour"
PAGES = sorted(TOUR.glob("[0-9]*.md"))
CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def run(page: Path, folder: Path) -> list[str]:
    """Run the cells of a page in a folder, where its pictures are written, and return what each one prints."""
    names: dict[str, object] = {"__name__": page.stem}
    printed = []
    with contextlib.chdir(folder):
        for cell in CELL.finditer(page.read_text(encoding="utf-8")):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(cell[1], page.name, "exec"), names)
            printed.append(output.getvalue())
    return printed


def shown(page: Path) -> list[str]:
    """What a page says that each of its cells prints."""
    return [cell[2] or "" for cell in CELL.finditer(page.read_text(encoding="utf-8"))]


def renew(page: Path) -> None:
    """Run a page, and write its outputs and its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(run(page, Path(folder)))
        for picture in Path(folder).iterdir():
            shutil.copy(picture, TOUR)

    def with_output(cell: re.Match[str]) -> str:
        output = next(printed)
        return f"```python\n{cell[1]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    page.write_text(CELL.sub(with_output, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        if not sys.argv[1:] or page.stem in sys.argv[1:]:
            renew(page)
