"""The character between the cells of a table: as a setting, as a file declares it, and as its first lines show it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from ...core.spec import brief
from .csv_header import kind_of
from .lines import Lines

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
BEGINNING = 50  # lines inspected to find the separator


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
