"""Hooks of the documentation site: pages for repository files that documents link to, and links to those pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = {"CHANGELOG.md", "CONTRIBUTING.md"}  # documents outside docs/ that are pages of their own
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s:]+)((?:#[^)]*)?)\)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".cpp": "cpp", ".h": "cpp"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every repository file that a document links to."""
    documents = [DOCS / file.src_uri for file in files.documentation_pages()] + [ROOT / name for name in sorted(TOP)]
    for name in sorted(TOP):
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted({path for document in documents for path in _linked_sources(document)}):
        files.append(File.generated(config, _page_of(path), content=_source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to repository files at their pages. Links to folders become plain text."""
    uri = page.file.src_uri
    folder = ROOT if uri in TOP else (DOCS / uri).parent

    def rewritten(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = (folder / target).resolve()
        if path.is_dir():
            return text
        page_uri = _page_of(path)
        return f"[{text}]({os.path.relpath(page_uri, Path(uri).parent)}{anchor})" if page_uri else match[0]

    return LINK.sub(rewritten, markdown)


def _linked_sources(document: Path) -> Iterator[Path]:
    """The files that a document links to and that are shown as source code."""
    for _, target, _ in LINK.findall(document.read_text(encoding="utf-8")):
        path = (document.parent / target).resolve()
        if path.is_file() and _page_of(path).startswith("source/"):
            yield path


def _page_of(path: Path) -> str:
    """The page of a file of this repository, relative to docs/; empty for a path that is not in it."""
    if not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT).as_posix()
    if inside == "README.md":
        return "index.md"
    if inside in TOP:
        return inside
    if path.is_relative_to(DOCS) and path.suffix != ".py":
        return path.relative_to(DOCS).as_posix()
    return f"source/{inside}.md"


def _source_page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    language = LANGUAGES.get(path.suffix, "text")
    heading = f"# {path.relative_to(ROOT).as_posix()}"
    return f'---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n{heading}\n\n``````{language} linenums="1"\n{text}\n``````\n'
