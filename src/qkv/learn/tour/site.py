"""Write the tour as HTML pages that need no network: an index, and a page each, with pictures inside."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from ...core.atomic import write_files
from ...io.directories.layout import Contents, claim_folder
from ...look.html import render
from .notebook import with_links, with_pictures
from .pages import folder, pages


class _Markdown(MarkdownIt):
    """Renderer that embeds SVG pictures, whose data URLs markdown-it rejects by default. These come from our own pages."""

    def validateLink(self, url: str) -> bool:
        return url.startswith("data:image/svg+xml;base64,") or super().validateLink(url)


def write(out: Path, documents: str) -> Path:
    """Write the pages into a folder, all or none of them; links to other documents lead to `documents`. Returns the first
    page.

    Raises ValueError if the folder holds other files than the tour's.
    """
    every = pages()
    claim_folder(out, Contents("the tour's pages", ("index.html", "[0-9][0-9]-*.html")))
    index = (folder() / "index.md").read_text(encoding="utf-8")
    first = _page("The tour", index, documents, [(page.title, page.name) for page in every[:1]])
    contents = {out / "index.html": first.encode()}
    for i, page in enumerate(every):
        beside = (*every[max(i - 1, 0) : i], *every[i + 1 : i + 2])
        around = [("The tour", "index"), *((other.title, other.name) for other in beside)]
        contents[out / f"{page.name}.html"] = _page(page.title, page.text, documents, around).encode()
    write_files(contents)
    return out / "index.html"


def _page(title: str, text: str, documents: str, around: list[tuple[str, str]]) -> str:
    text = with_links(with_pictures(text, folder()), documents, kept=".html")
    body = _Markdown("commonmark").enable("table").render(text)
    return render(
        "tour.html", title=title, body=Markup(body), around=[{"title": t, "href": f"{n}.html"} for t, n in around]
    )
