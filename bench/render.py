"""Writes the tables and plots of the docs from the newest results.

A table goes between `<!-- bench:NAME -->` and `<!-- /bench -->` in its page; the text around it is left alone. Figures are
written beside the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import overview
from .real import command as real
from .results import RESULTS, Result, latest
from .tables import TABLES
from .tables.table import provenance

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "performance.md", Path(__file__).with_name("performance-tables.md"), DOCS / "attention.md")
_PLACE = re.compile(r"(<!-- bench:([\w-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def render(result: Result) -> str:
    """A table as Markdown, and below it where it comes from."""
    return f"{TABLES[result.table].render(result)}\n\n{provenance(result)}\n"


def rendered(page: str, folder: Path = RESULTS) -> str:
    """The page with every table that has results renewed."""

    def renew(match: re.Match[str]) -> str:
        if match[2] == "summary":
            return f"{match[1]}\n{overview.render(folder)}\n{match[3]}"
        if match[2] not in TABLES:
            raise ValueError(
                f"a page asks for a table {match[2]!r}, which does not exist; there are {', '.join(TABLES)}"
            )
        path = latest(match[2], folder)
        return match[0] if path is None else f"{match[1]}\n{render(Result.read(path))}\n{match[3]}"

    return _PLACE.sub(renew, page)


def figures(folder: Path = RESULTS) -> dict[str, str]:
    """Every figure by the name of its file in the docs."""
    newest = {name: path for name in TABLES if (path := latest(name, folder)) is not None}
    drawn = {file: svg for name, path in newest.items() for file, svg in TABLES[name].draw(Result.read(path)).items()}
    return drawn | overview.figure(folder)


def write() -> None:
    for page in PAGES:
        page.write_text(rendered(page.read_text()))
    for file, svg in figures().items():
        (DOCS / file).write_text(svg)
    real.render()
