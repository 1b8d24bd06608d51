"""Notebooks are valid, show what the pages show, and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from qkv.learn.tour.notebook import notebook, with_links
from qkv.learn.tour.pages import CodeCell, Page, pages

SITE = "https://example.org"


def read(page: Page) -> Any:
    return nbformat.reads(json.dumps(notebook(page, SITE)), as_version=4)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_notebook_is_valid_and_holds_the_page(page: Page) -> None:
    made = read(page)
    nbformat.validate(made)
    cells = [part for part in page.parts() if isinstance(part, CodeCell)]
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert ["".join(cell.source).rstrip() for cell in code] == [cell.code.rstrip() for cell in cells]
    assert not any(".svg)" in "".join(cell.source) for cell in made.cells if cell.cell_type == "markdown")


def test_links_lead_to_the_documents() -> None:
    text = "[a](../look.md#x) [b](04-heads.md) [c](https://d.org) ![p](e.svg) [s](../../src/qkv/a.py)"
    there = f"[a]({SITE}/docs/look.md#x) [b]({SITE}/docs/tour/04-heads.md) [c](https://d.org) ![p](e.svg)"
    assert with_links(text, SITE) == f"{there} [s]({SITE}/src/qkv/a.py)"
    assert "[b](04-heads.html)" in with_links(text, SITE, kept=".html")


def executed(page: Page, place: Path) -> None:
    made = read(page)
    nbclient.NotebookClient(made, timeout=200, resources={"metadata": {"path": str(place)}}).execute()
    printed = [
        "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")
        for cell in made.cells
        if cell.cell_type == "code"
    ]
    assert printed == [part.output for part in page.parts() if isinstance(part, CodeCell)]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_notebook_runs(page: Page, tmp_path: Path) -> None:
    executed(page, tmp_path)
