"""Panels of a page: heat maps, tables, trees and texts with a title, each a JSON object with a `kind` that is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Panel = dict[str, Any]
"""`kind` ("heat", "table", "tree", "texts"), `title`, `note`, and what the kind needs."""


@dataclass(frozen=True)
class Branch:
    """A node of a tree: its label, its value, whether it belongs to the result, and what follows it."""

    label: str
    value: float
    chosen: bool = False
    why: str = ""
    branches: tuple[Branch, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "value": _finite(self.value),
            "chosen": self.chosen,
            "why": self.why,
            "branches": [branch.to_json() for branch in self.branches],
        }


@dataclass(frozen=True)
class ExcitedText:
    """Tokens of a text with a number for each, the index of the largest, and whether tokens around them are left out."""

    tokens: tuple[str, ...]
    values: tuple[float, ...]
    at: int
    cut_before: bool = False
    cut_after: bool = False


def heat_panel(
    title: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]] | None = None,
    note: str = "",
    row_title: str = "",
    column_title: str = "",
    diverging: bool = False,
) -> Panel:
    """Return a heat map with a label for every row and column; `texts` are written into the cells.

    Shades go from 0 to the largest value; with `diverging`, from the largest negative to the largest positive one, whose
    signs are told apart by color and by a sign. Values that are not finite are drawn as missing.
    Raises ValueError if the values don't fit the labels.
    """
    if len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise ValueError(f"values don't fit {len(rows)} rows and {len(columns)} columns")
    return {
        "kind": "heat",
        "title": title,
        "note": note,
        "rows": list(rows),
        "columns": list(columns),
        "values": [[_finite(value) for value in row] for row in values],
        "texts": None if texts is None else [list(row) for row in texts],
        "rowTitle": row_title,
        "columnTitle": column_title,
        "diverging": diverging,
    }


def table_panel(title: str, *, columns: Sequence[str], rows: Sequence[Sequence[str | float]], note: str = "") -> Panel:
    """Return a table; numbers are aligned and rounded to four digits, and a click on a column's title sorts by it."""
    cells = [[_finite(cell) if isinstance(cell, float) else cell for cell in row] for row in rows]
    return {"kind": "table", "title": title, "note": note, "columns": list(columns), "rows": cells}


def tree_panel(title: str, roots: Sequence[Branch], note: str = "") -> Panel:
    """Return a tree of tokens with scores, such as that of a beam search."""
    return {"kind": "tree", "title": title, "note": note, "roots": [root.to_json() for root in roots]}


def texts_panel(title: str, texts: Sequence[ExcitedText], note: str = "") -> Panel:
    """Return texts whose tokens are shaded by a number, which is written below each."""
    rows = [
        {
            "tokens": list(one.tokens),
            "values": [_finite(value) for value in one.values],
            "at": one.at,
            "cut": [one.cut_before, one.cut_after],
        }
        for one in texts
    ]
    return {"kind": "texts", "title": title, "note": note, "rows": rows}


def _finite(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
