"""`qkv tour`: the tour of attention and Transformers in the terminal, in the browser, or as notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.options import Json
from ...cli.say import console, echo, echo_json

if TYPE_CHECKING:
    from ..tour.pages import Page

DOCUMENTS = "https://github.com/qkv-project/qkv/blob/main"


def _names(incomplete: str) -> list[str]:
    from ..tour.pages import pages

    return [page.short for page in pages() if page.short.startswith(incomplete)]


def tour(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAGE",
            help="The number or name of a page to walk through, or a term that it teaches, such as teacher forcing: "
            "its code runs as you read. Without it, a list.",
            autocompletion=_names,
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the tour in a browser; it needs no network.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the tour as HTML pages.")] = None,
    notebooks: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the pages, or PAGE alone, as Jupyter notebooks.")
    ] = None,
    json: Json = False,
) -> None:
    """Learn attention and Transformers from the start: pages whose code runs."""
    from ..tour.pages import find, pages

    page = " ".join(words) if words else None
    chosen = (find(page),) if page is not None else pages()
    if open_ or html is not None:
        if page is not None:
            raise ValueError("--open and --html take the whole tour; leave PAGE out")
        _html(html, open_)
    if notebooks is not None:
        _notebooks(chosen, notebooks)
    if open_ or html is not None or notebooks is not None:
        return
    if json:
        echo_json([{"number": one.number, "name": one.name, "title": one.title, "about": one.about} for one in chosen])
    elif page is None:
        _list()
    else:
        from ..tour.terminal import walk

        _note(page, chosen[0])
        walk(chosen[0], console(), _wait)


def _note(word: str, page: Page) -> None:
    """Say what a word means that is not the name of the page."""
    from ..concepts import find

    concept = find(word)
    if concept is not None and word != page.short:
        echo(f"{word}: {concept.title}, page {page.number}; run: {concept.command}; expect: {concept.shows}", err=True)


def _html(folder: Path | None, show: bool) -> None:
    import tempfile
    import webbrowser

    from ..tour import site

    index = site.write(folder or Path(tempfile.gettempdir()) / "qkv-tour", DOCUMENTS)
    opened = show and webbrowser.open(index.resolve().as_uri())
    echo(f"The tour is in {index}{'' if opened else '; open it in a browser'}.")


def _notebooks(chosen: tuple[Page, ...], folder: Path) -> None:
    import json

    from ...core.atomic import write_files
    from ...io.directories.layout import Contents, claim_folder
    from ..tour.notebook import notebook

    claim_folder(folder, Contents("the tour's notebooks", ("[0-9][0-9]-*.ipynb",)))
    contents = {
        folder / f"{one.name}.ipynb": json.dumps(notebook(one, DOCUMENTS), indent=1, ensure_ascii=False) + "\n"
        for one in chosen
    }
    for path, text in contents.items():
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"{path} has been changed, and is kept; choose another directory, or move it away")
    write_files({path: text.encode() for path, text in contents.items()})
    echo(
        f"Wrote {len(chosen)} notebook{'' if len(chosen) == 1 else 's'} to {folder}; `jupyter lab {folder}` opens them."
    )


def _list() -> None:
    from rich.table import Table

    from ..tour.pages import pages

    table = Table(box=None, show_header=False, pad_edge=False)
    for one in pages():
        table.add_row(str(one.number), one.title, one.about)
    console().print(table)
    echo("\nqkv tour 1 walks through the first page; qkv tour --open shows them all in a browser.")


def _wait() -> None:
    """Wait for Enter before a cell runs, if someone is at the terminal."""
    import sys

    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        input("Enter runs this … ")
