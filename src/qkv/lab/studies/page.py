"""The report of a study: a page of sections, and the list of its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from ...io.directories.layout import write_text
from ...look.html import render
from ...look.svg import join, tag
from ...runs.report.story import Section


def write_report(
    path: Path,
    kind: str,
    title: str,
    sections: Iterable[Section | None],
    *,
    lead: str = "",
    warning: str = "",
    facts: Sequence[tuple[str, str, str]] = (),
) -> Path:
    """Write the page and return its path.

    kind: the word above the title. facts: (name, value, detail). Sections that are None are left out.
    """
    kept = [section for section in sections if section is not None]
    page = render(
        "report.html", eyebrow=kind, title=title, lead=lead, warning=warning, facts=list(facts), sections=kept
    )
    write_text(path, page)
    return path


def file_list(names: Iterable[str]) -> Markup:
    """Return a list of links to files in the folder of the page."""
    return tag("ul", join(*(tag("li", tag("a", name, href=name)) for name in names)))
