"""Hooks of the documentation site: the generated reference, and pages for repository files that documents link to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = {  # documents outside docs/ that are pages
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(f"bench/{name}.md" for name in ("performance-tables", "products", "results-commands")),
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s:]+)((?:#[^)]*)?)\)")
PICTURE = re.compile(r'<a href="([\w-]+)\.png"><img ([^>]*)src="\1\.png"([^>]*)></a>')
CODE = re.compile(r"<code>[^<]*</code>")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".cpp": "cpp", ".h": "cpp"}


def on_config(config: Any) -> Any:
    """Fill the section of the navigation that is generated."""
    section = next(entry for entry in config.nav if "Reference" in entry)
    section["Reference"] = reference.navigation()
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and a page for every repository file that a document links to."""
    documents = [DOCS / file.src_uri for file in files.documentation_pages()] + [ROOT / name for name in sorted(TOP)]
    for name in sorted(TOP):
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for source in sorted({path for document in documents for path in _linked_sources(document)}):
        files.append(File.generated(config, _page_of(source), content=_source_page(source)))
    for path, content in reference.pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to repository files at their pages. Links to folders become plain text."""
    uri = page.file.src_uri
    if uri.startswith("tour/"):
        page.meta.setdefault("hide", ["toc"])  # short pages, whose code needs the width
    if uri.startswith(f"{reference.FOLDER}/"):
        return markdown
    folder = ((ROOT if uri in TOP else DOCS) / uri).parent

    def rewritten(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = (folder / target).resolve()
        if path.is_dir():
            return text
        page_uri = _page_of(path)
        return f"[{text}]({os.path.relpath(page_uri, Path(uri).parent)}{anchor})" if page_uri else match[0]

    return LINK.sub(rewritten, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Mend code (drop the backslash of `a \\| b` in tables, as GitHub does; keep options on one line), give pictures their
    dark variants, and mark the tour."""

    def mended(code: re.Match[str]) -> str:
        return OPTION.sub(r'<span class="option">\g<0></span>', code[0].replace("\\|", "|"))

    def in_both_modes(picture: re.Match[str]) -> str:
        name, before, after = picture.groups()
        if not (DOCS / f"{name}-dark.png").exists():
            return picture[0]
        variants = ((f"{name}.png", "light"), (f"{name}-dark.png", "dark"))
        return "".join(f'<a href="{file}"><img {before}src="{file}#only-{mode}"{after}></a>' for file, mode in variants)

    html = PICTURE.sub(in_both_modes, CODE.sub(mended, html))
    return f'<div class="tour">{html}</div>' if page.file.src_uri.startswith("tour/") else html


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
