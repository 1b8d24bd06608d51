"""How the cells of a table are separated and quoted: as settings, as a file declares it, and as its lines show it.

Whether a TSV file is quoted is detected. Excel, pandas and Python's `csv` quote every cell that contains a quotation
mark and double that mark; an unquoted corpus has such marks anywhere. A file therefore counts as quoted if it parses
strictly as such, no unquoted cell has a quotation mark, and some cell needed its quotes. A cell needs them for a
doubled mark, a tab or a line end. Quotes around all cells count too, and, as in Excel's files, quotes around a comma if
no unquoted cell has one.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from ...core.spec import brief
from .cache import Stamp
from .csv_header import kind_of
from .lines import LONGEST, Lines

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
BEGINNING = 50  # lines inspected to find the separator
_SNIFFED = 200_000  # lines inspected to detect quoting


def _one_character(name: str) -> str:
    separator = SEPARATORS.get(name, name)
    if len(separator) != 1 or separator in '"\r\n.' or separator.isalnum():
        names = ", ".join(name for name in SEPARATORS if name.isalpha())
        raise ValueError(
            f"a separator of cells is one character, such as ';', or its name ({names}), not {brief(name)}"
        )
    return separator


Separator = Annotated[str, AfterValidator(_one_character)]
"""The character between the cells of a row, or its name."""


def _mark(character: str) -> str:
    if len(character) != 1 or character.isalnum() or character.isspace():
        raise ValueError(f"a mark is one character, such as ' or \\, not {brief(character)}")
    return character


Mark = Annotated[str, AfterValidator(_mark)]
"""A character around cells, or before such a character within them."""


class Quotes(NamedTuple):
    """The `quote` around cells, and the `escape` before quotes within cells, if they are not doubled."""

    quote: str = '"'
    escape: str | None = None

    def settings(self) -> tuple[str, ...]:
        """The settings of the data that differ from the usual ones, as for a shell without its own quotes."""
        quote = () if self.quote == '"' else (f"data.quote={json.dumps(self.quote)}",)
        return quote if self.escape is None else (*quote, f"data.escape={json.dumps(self.escape)}")

    def __str__(self) -> str:
        inside = "" if self.escape is None else f", with {self.escape} before such marks within them"
        return f"quoted by {self.quote}{inside}"


USUAL = Quotes()
OTHERS = (Quotes('"', "\\"), Quotes("'"), Quotes("'", "\\"))


def detected_separator(text: str) -> str:
    """The separator of a CSV, by its first lines: the one that divides the most of them into equally many cells; of several
    that do, the one with the most numbers, since locales with a decimal comma use semicolons."""
    lines = [line for line in re.split(r"[\r\n]+", text)[:BEGINNING] if line.strip()]
    return max(",;\t|", key=partial(fit, lines)) if lines else ","


def fit(lines: list[str], separator: str) -> tuple[float, float]:
    """The share of lines with the most common number of cells, if that is not one; and the share of cells with numbers."""
    with suppress(csv.Error):
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        numbers = sum(kind_of(cell.strip()) == "number" for row in rows for cell in row)
        return (count / len(rows), numbers / sum(map(len, rows))) if width > 1 else (0.0, 0.0)
    return 0.0, 0.0


def named(separator: str) -> str:
    """The name of a separator, in the plural."""
    names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes", " ": "spaces"}
    return names.get(separator, repr(separator))


def declared(lines: Lines) -> str | None:
    """Return the separator that a first line such as `sep=;` declares, which Excel writes and reads."""
    match = re.fullmatch(r'"?sep=([^\w"])"?\s*', lines[0], re.IGNORECASE) if len(lines) else None
    return match and match[1]


def reader_of(lines: Iterator[str], delimiter: str, quotes: Quotes = USUAL) -> Any:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    quote, escape = quotes
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=True)


def _text(lines: Lines, begin: int, stop: int) -> Iterator[str]:
    return (f"{lines[i]}\n" for i in range(begin, stop))


# -- quoted or not --------------------------------------------------------------------------------------------------


def marked(lines: Lines) -> int | None:
    """The first line with a cell that begins with a quotation mark."""
    return lines.first(b'"', b'\t"')


@lru_cache(maxsize=64)
def looks_quoted(path: Path, stamp: Stamp, encoding: str, strict: bool) -> bool:
    lines = Lines(path, encoding, strict)
    begin = marked(lines)
    if begin is None:
        return False
    comma = lines.first(b",", b",")
    seen = Counter({"bare": begin, "bare comma": int(comma is not None and comma < begin)})
    width, at = len(lines[0].split("\t")) if begin else 0, begin
    stop = min(len(lines), begin + _SNIFFED)
    reader = reader_of(_text(lines, begin, stop), "\t")
    try:
        for row in reader:
            text = lines.text(at, begin + reader.line_num)
            at = begin + reader.line_num
            width = width or len(row)
            if not _judged(text, row, width, seen):
                return False
    except csv.Error:
        if stop == len(lines) or begin + reader.line_num < stop:  # else a cell continues beyond the inspected lines
            return False
    if seen["needed"] or not seen["bare"]:
        return True
    return bool(seen["comma"]) and not seen["bare comma"] and not seen["idle"]


def _judged(text: str, row: list[str], width: int, seen: Counter[str]) -> bool:
    """Count evidence for quoting in a row; False if the row can't be quoted."""
    lines = text.split("\n")
    cells = lines[0].split("\t")
    if len(lines) > 1:  # a quoted line end; not if each line is a row by itself
        seen["needed"] += 1
        return any(len(line.split("\t")) != width for line in lines)
    if len(cells) != len(row):  # a tab in a quoted cell
        seen["needed"] += 1
        return len(cells) != width
    for cell, value in zip(cells, row, strict=True):
        if not cell.startswith('"'):
            if '"' in cell:
                return False
            seen["bare"] += bool(cell) and not cell.isdecimal()
            seen["bare comma"] += "," in cell
        elif '"' in value:
            seen["needed"] += 1
        else:
            seen["comma" if "," in value else "idle"] += 1
    return True
