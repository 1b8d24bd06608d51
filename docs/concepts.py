"""Writes the tables of docs/lectures.md from the table of concepts: `.venv/bin/python docs/concepts.py`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from qkv.learn.concepts import Concept, concepts
from qkv.learn.tour.pages import find

PAGE = Path(__file__).parent / "lectures.md"
TABLES = re.compile(r"(?<=<!-- docs/concepts.py: begin -->\n).*(?=<!-- end -->)", re.DOTALL)


def tables() -> str:
    """A heading and a table for each section."""
    return "\n".join(
        f"## {section}\n\n| concept | in lectures | read | run | expect |\n|---|---|---|---|---|\n"
        + "".join(map(row, found))
        for section, found in groupby(concepts(), lambda concept: concept.section)
    )


def row(concept: Concept) -> str:
    page = find(concept.tour)
    read = f"[{page.number}. {page.title}](tour/{page.name}.md)"
    if concept.more:
        read += f", [more]({concept.more})"
    run = code(concept.command) + (f"; with yours: {code(concept.yours)}" if concept.yours else "")
    words = ", ".join(escaped(word) for word in concept.words)
    return f"| {escaped(concept.title)} | {words} | {read} | {run} | {code(concept.shows)} |\n"


def escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]|<>])", r"\\\1", text)


def code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def renewed(page: str) -> str:
    """The page with its tables made anew."""
    return TABLES.sub(lambda _: f"\n{tables()}\n", page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
