"""What sources of text files share: the encoding, and what becomes of what can't be read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from ..holdout import FileSource
from ..source import Example, Skipped, Split, Table
from .encodings import Encoding
from .lines import Lines

_TOLD = 3  # examples of a table that are named when they are left out


class TextFiles(FileSource):
    """Files of text.

    encoding: of their bytes; UTF-16 and UTF-32 with a byte-order mark are known by it.
    damaged:  "refuse" what can't be read, a line that is not in its encoding, no JSON or too long; or "skip" it, which names
              the first of them and counts all.
    """

    encoding: Encoding = "utf-8"
    damaged: Literal["refuse", "skip"] = "refuse"

    @property
    def compared(self) -> bool:
        return True

    @property
    def strict(self) -> bool:
        return self.damaged == "refuse"

    def lines(self, path: Path) -> Lines:
        return Lines(path, self.encoding, self.strict)

    def readable(self, split: Split) -> Table:
        table = super().readable(split)
        return table if self.strict else _Tolerant(table)


class _Tolerant:
    """A table in which what can't be read is left out."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.weight = getattr(table, "weight", 1)
        self._told = 0

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        try:
            return self.table[i]
        except ValueError as error:
            if self._told < _TOLD:
                more = "" if self._told + 1 < _TOLD else "; what else is damaged is only counted"
                warnings.warn(f"left out: {error}{more}", stacklevel=2)
            self._told += 1
            return Skipped("damaged")
