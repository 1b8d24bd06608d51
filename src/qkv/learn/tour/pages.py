"""Read the pages of the tour: text, cells of Python, and what each cell prints."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...core.spec import brief
from .. import concepts

CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+)\. \[([^\]]+)\]\(([^)]+)\.md\) \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class CodeCell:
    """Code, and what it prints."""

    code: str
    output: str


@dataclass(frozen=True)
class Page:
    """A page: its number, title and what it is about, as the index says, and its file."""

    number: int
    title: str
    about: str
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def short(self) -> str:
        """The name without the number."""
        return self.name.partition("-")[2]

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def parts(self) -> list[str | CodeCell]:
        """Markdown and cells, in their order."""
        text, parts, end = self.text, list[str | CodeCell](), 0
        for match in CELL.finditer(text):
            parts += [text[end : match.start()], CodeCell(match[1], match[2] or "")]
            end = match.end()
        return [part for part in (*parts, text[end:]) if isinstance(part, CodeCell) or part.strip()]


@cache
def folder() -> Path:
    """Where the pages are: in the installed package, or in the docs of a checkout. Raises ValueError if they are
    not."""
    here = Path(__file__).parent
    for place in (here / "pages", here.parents[3] / "docs" / "tour"):
        if (place / "index.md").is_file():
            return place
    raise ValueError("the pages of the tour are not installed; install qkv from a wheel, or clone its repository")


@cache
def pages() -> tuple[Page, ...]:
    """All pages, in their order."""
    index = (folder() / "index.md").read_text(encoding="utf-8")
    return tuple(Page(int(n), title, about, folder() / f"{name}.md") for n, title, name, about in ROW.findall(index))


def find(name: str) -> Page:
    """The page of a number, a name such as `03-attention`, the part after the number, or a word of `concepts.yaml`. Raises
    ValueError with the nearest words."""
    concept = concepts.find(name)
    for wanted in (name, concept.tour) if concept is not None else (name,):
        for page in pages():
            if wanted in (str(page.number), page.name, page.short):
                return page
    known = [page.short for page in pages()]
    raise ValueError(
        f"the tour has no page {brief(name)}; {concepts.near(name, known)}, or give a number from 1 to {len(known)}"
    )


def run(page: Page, place: Path) -> Iterator[str]:
    """Run the cells of a page one after another in a folder, where pictures are written; yield what each prints."""
    names: dict[str, object] = {"__name__": page.name}
    for part in page.parts():
        if isinstance(part, CodeCell):
            with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(part.code, page.path.name, "exec"), names)
            yield output.getvalue()
