"""What a file holds by its first bytes, whatever its name says: tables and texts are not read from other kinds of files."""

from __future__ import annotations

import io
import re
import shlex
import zipfile
from collections.abc import Collection
from mmap import mmap
from pathlib import Path, PurePath

from ..core.spec import brief

_HEAD = 512  # bytes that are looked at
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xls", ".parquet")
_ZIP = b"PK\x03\x04"
_FIRST = {  # the first bytes of a file: what it is, and what to do
    b"\x1f\x8b": ("is compressed with gzip", "give it a name that ends in .gz, such as {name}.gz"),
    b"BZh": ("is compressed with bzip2", "give it a name that ends in .bz2, such as {name}.bz2"),
    b"\xfd7zXZ\0": ("is compressed with xz", "give it a name that ends in .xz, such as {name}.xz"),
    b"\x28\xb5\x2f\xfd": ("is compressed with zstd", "give it a name that ends in .zst, such as {name}.zst"),
    b"7z\xbc\xaf\x27\x1c": ("is a 7z archive", "unpack it"),
    b"Rar!\x1a\x07": ("is a RAR archive", "unpack it"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": (
        "is an old Office document, such as an Excel workbook (.xls)",
        "open it in Excel or LibreOffice and save it as CSV in UTF-8",
    ),
    b"PAR1": ("is a Parquet file", "give it a name that ends in .parquet, such as {stem}.parquet"),
    b"ARROW1\0\0": ("is an Arrow or Feather file", "save it as Parquet in Python: {feather}"),
    b"SQLite format 3\0": ("is a SQLite database", "export a table: {sqlite}"),
    b"{\\rtf": ("is a rich-text document (RTF)", "save it as plain text in UTF-8"),
    b"%PDF-": ("is a PDF document", "save its text as .txt, for example with {pdf}"),
    b"\x89PNG\r\n\x1a\n": ("is a picture (PNG)", "pictures are given as a folder"),
    b"\xff\xd8\xff": ("is a picture (JPEG)", "pictures are given as a folder"),
    b"GIF89a": ("is a picture (GIF)", "pictures are given as a folder"),
    b"\x93NUMPY": ("is a NumPy array", "save it as CSV in Python: {numpy}"),
    b"\x89HDF\r\n\x1a\n": ("is an HDF5 file", "save its table as .csv or .parquet"),
}
_PICKLE = re.compile(rb"\x80[\x02-\x05](\x95.{8})?[\x80-\x95\x00-\x7f]", re.DOTALL)
_INSIDE = {  # the beginning of a name inside a zip file: what the file is, and what to do
    "xl/": ("is an Excel workbook (.xlsx)", "save it as CSV in Excel, or with pandas and openpyxl in Python: {excel}"),
    "word/": ("is a Word document (.docx)", "save it as plain text in UTF-8"),
    "ppt/": ("is a PowerPoint document (.pptx)", "save its text as .txt in UTF-8"),
    "content.xml": ("is an OpenDocument file, such as .ods or .odt", "save it in LibreOffice as CSV or text, in UTF-8"),
    "META-INF/container.xml": ("is an e-book (EPUB)", "save its text as .txt, for example with {pandoc}"),
}
_PAGE = re.compile(rb"\s*(<!--.*?-->\s*|<\?xml.*?\?>\s*)*<(!doctype\s+html|html|table|head|meta)\b", re.I | re.DOTALL)
_DRAWN = re.compile(
    rb"(\s*\+[-=+]+\+[ \t]*\r?\n)?[^\n]*\|[^\n]*\n[ \t]*(?=[^\n]*[|+])[|:+ \t=-]*--[|:+ \t=-]*\r?(\n|\Z)"
)
_XML = re.compile(
    rb"\s*(<!--.*?-->\s*)*(<\?xml\b|<!doctype\s+(?!html)\w|<(svg|rss|feed|tei|mediawiki)\b)", re.I | re.DOTALL
)
_SVG = re.compile(rb"<svg\b", re.I)
_NOTEBOOK = re.compile(rb'"(nbformat|cells)"\s*:')
_MARKED = {  # what a text is by its name: files whose beginnings are not looked at
    **dict.fromkeys((".html", ".htm", ".xhtml"), "HTML"),
    **dict.fromkeys((".xml", ".svg", ".rss", ".tei"), "XML"),
    ".ipynb": "a Jupyter notebook",
    **dict.fromkeys((".csv", ".tsv", ".jsonl", ".json"), "a table"),
}
_PAGE_ENDS = re.compile(rb"</(html|table|body)>\s*(<!--.*-->\s*)?\Z", re.I | re.DOTALL)


def is_hidden(name: PurePath) -> bool:
    """Whether a file, named relative to a user's folder or archive, is hidden, or is one that a system leaves behind:
    `.DS_Store`, `._a.jpg`, what is in `__MACOSX`, `Thumbs.db`, `desktop.ini`."""
    left = name.name.lower() in ("thumbs.db", "desktop.ini")
    return left or any(part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")) for part in name.parts)


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """The files below a folder whose names end with one of these suffixes, in lower case, in order; without hidden ones."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    return sorted(path for path in files if not is_hidden(path.relative_to(folder)))


def other_kind(path: Path, content: bytes | mmap) -> str | None:
    """What a file is and what to do, if it is no text by its `content`: a compressed file, a workbook, a picture and the
    like. None for one that may be text."""
    head = bytes(content[:_HEAD])
    found = next((known for first, known in _FIRST.items() if head.startswith(first)), None)
    if (head.startswith(b"PAR1") and bytes(content[-4:]) != b"PAR1") or (head[:3] == b"BZh" and head[4:7] != b"1AY"):
        found = None  # a text that begins with these letters
    if found is None and head.startswith(_ZIP):
        found = _in_zip(content)
    if found is None and _PICKLE.match(head) and bytes(content[-1:]) == b".":
        found = "is a pickle of Python objects", "if you trust it, save it as CSV in Python: {pickle}"
    return _sentence(path, *found) if found else None


def other_table(path: Path, content: bytes | mmap) -> str | None:
    """The same for a file that should be a table: it may be an HTML page too."""
    if _PAGE.match(bytes(content[:_HEAD])) and _PAGE_ENDS.search(bytes(content[-_HEAD:])):
        what = "is an HTML page (some programs export one as .xls or .csv)"
        return _sentence(
            path, what, "open it in Excel or LibreOffice and save it as CSV, or with pandas and lxml in Python: {html}"
        )
    return drawn_table(path, bytes(content[: 8 * _HEAD])) or other_kind(path, content)


def markup(path: Path, content: bytes | mmap | None = None) -> str | None:
    """Return the kind of a text file whose markup would be read as text: "HTML", "XML", "a Jupyter notebook" or "a table".
    Return None for plain text. Without `content`, only the file's name is checked."""
    head = b"" if content is None else bytes(content[:_HEAD]).removeprefix(b"\xef\xbb\xbf")
    if _PAGE.match(head):
        return "HTML"
    if _XML.match(head):
        return "an SVG picture" if _SVG.search(head) else "XML"
    if content is not None and head.lstrip()[:1] == b"{" and _is_notebook(path, content):
        return "a Jupyter notebook"
    return _MARKED.get(path.suffix.lower())


def _is_notebook(path: Path, content: bytes | mmap) -> bool:
    places = bytes(content[:_HEAD]), bytes(content[-_HEAD:])  # its keys are sorted: "cells" first, "nbformat" last
    return path.suffix.lower() == ".ipynb" or {found for place in places for found in _NOTEBOOK.findall(place)} == {
        b"cells",
        b"nbformat",
    }


def without_marks(path: Path, what: str) -> str:
    """Return advice on how to save the text of a file without its markup."""
    text = shlex.quote(str(path.with_suffix(".new.txt")))
    if what == "HTML":
        return f"`pandoc -f html -t plain {shlex.quote(str(path))} -o {text}` writes its text alone"
    if what == "a Jupyter notebook":
        return f"`jupyter nbconvert --to markdown {shlex.quote(str(path))}` writes its text alone"
    return "save its texts alone as .txt if the marks should not be learned"


def drawn_table(path: Path, beginning: bytes) -> str | None:
    """The same for a table that begins with names between | and a line of dashes, as in Markdown."""
    if not _DRAWN.match(beginning):
        return None
    steps = (r"/^[-|:+= \t]+$/d", r"s/^[ \t]*\|?[ \t]*//", r"s/[ \t]*\|?[ \t]*$//", r"s/[ \t]*\|[ \t]*/\t/g")
    command = shlex.join(["sed", "-E", *(part for step in steps for part in ("-e", step)), str(path)])
    return (
        f"{path.name} is a table drawn with | and dashes, as in Markdown; save it as CSV, or as TSV with GNU sed: "
        f"`{command} > {shlex.quote(f'{path.stem}.tsv')}`"
    )


def _in_zip(content: bytes | mmap) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return "is a damaged zip archive or Office document", "get it again, and save a table as CSV"
    for name in names:
        if name.endswith("data.pkl"):
            return "is a file of PyTorch (torch.save)", "save a table as .csv, .jsonl or .parquet"
        if name.endswith(".npy"):
            return "is a NumPy archive (.npz)", "save its table as CSV with numpy.savetxt"
        if known := next((known for first, known in _INSIDE.items() if name.startswith(first)), None):
            return known
    listed = ", ".join(map(brief, names[:3])).replace("{", "{{").replace("}", "}}")
    return "is a zip archive", f"unpack it; it holds {listed or 'nothing'}{', …' if names[3:] else ''}"


def _sentence(path: Path, what: str, advice: str) -> str:
    stem = path.with_suffix("")
    csv = f"to_csv({f'{stem}.new.csv'!r}, index=False)"
    lines = {
        "excel": f"pandas; pandas.read_excel({str(path)!r}).{csv}",
        "pickle": f"pandas; pandas.read_pickle({str(path)!r}).{csv}",
        "html": f"pandas; pandas.read_html({str(path)!r}, header=0)[0].{csv}",
        "feather": f"pandas; pandas.read_feather({str(path)!r}).to_parquet({f'{stem}.new.parquet'!r})",
        "numpy": f"numpy; numpy.savetxt({f'{stem}.new.csv'!r}, numpy.load({str(path)!r}), '%s', ',')",
    }
    code = {name: f"`import {line}`" for name, line in lines.items()}
    code["sqlite"] = f"`{shlex.join(['sqlite3', '-header', '-csv', str(path), 'SELECT * FROM NAME'])} > new.csv`"
    code["pandoc"] = f"`{shlex.join(['pandoc', '-f', 'epub', '-t', 'plain', str(path), '-o', f'{stem}.new.txt'])}`"
    code["pdf"] = f"`{shlex.join(['pdftotext', str(path), f'{stem}.new.txt'])}`"
    despite = ", whatever its name says" if path.suffix.lower() in _TEXTS else ""
    return f"{path.name} {what}{despite}; {advice.format(name=path.name, stem=stem.name, **code)}"
