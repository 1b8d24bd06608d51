"""Write a page of the tour as a Jupyter notebook, with the outputs that the page shows (nbformat 4.5)."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from .pages import CodeCell, Page

PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)")
LINK = re.compile(r"(?<!!)(\[[^\]]*\])\((?![a-z]+:|#)([^)#\s]+)((?:#[^)]*)?)\)")


def notebook(page: Page, documents: str) -> dict[str, Any]:
    """The notebook as JSON data. Pictures are inside it; links to other documents lead to `documents`, an address."""
    cells, count = [], 0
    for number, part in enumerate(page.parts()):
        if isinstance(part, CodeCell):
            count += 1
            output = {"output_type": "stream", "name": "stdout", "text": _lines(part.output)}
            cells.append(
                {
                    "cell_type": "code",
                    "execution_count": count,
                    "id": f"{page.name}-{number}",
                    "metadata": {},
                    "outputs": [output] if part.output else [],
                    "source": _lines(part.code.rstrip("\n")),
                }
            )
        else:
            text = with_links(with_pictures(part, page.path.parent), documents)
            cells.append(
                {
                    "cell_type": "markdown",
                    "id": f"{page.name}-{number}",
                    "metadata": {},
                    "source": _lines(text.strip("\n")),
                }
            )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def with_pictures(text: str, place: Path) -> str:
    """The text with its SVG pictures inside, as data addresses."""

    def inside(match: re.Match[str]) -> str:
        data = base64.b64encode((place / match[2]).read_bytes()).decode()
        return f"![{match[1]}](data:image/svg+xml;base64,{data})"

    return PICTURE.sub(inside, text)


def with_links(text: str, documents: str, kept: str = "") -> str:
    """The text with relative links pointing below `documents`; those between pages to files that end in `kept`, if given."""

    def absolute(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        if kept and "/" not in target and target.endswith(".md"):
            return f"{label}({target.removesuffix('.md')}{kept}{anchor})"
        path = Path("docs/tour") / target
        parts: list[str] = []
        for piece in path.parts:
            parts = parts[:-1] if piece == ".." else [*parts, piece]
        return f"{label}({documents}/{'/'.join(parts)}{anchor})"

    return LINK.sub(absolute, text)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
