"""`Step` and `LabeledTable`: what one step of a computation shows, which the terminal, JSON and HTML render alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

MOST = 12  # rows or columns of a table
Value = float | str | None
Values = Tensor | Sequence[Value]


@dataclass(frozen=True)
class LabeledTable:
    """Numbers labelled with tokens. Values are unrounded; None is an empty cell.

    shaded: cells are weights from 0 to 1, drawn with a background of that strength.
    by_column: columns are different quantities, each formatted by itself.
    note: says what was left out of a long table; empty if nothing was.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    caption: str = ""
    shaded: bool = False
    by_column: bool = False
    note: str = ""

    def texts(self) -> list[list[str]]:
        """The values as they are displayed."""
        if self.by_column:
            columns = [_formatted([row[c] for row in self.values]) for c in range(len(self.columns))]
            return [[column[r] for column in columns] for r in range(len(self.rows))]
        flat = iter(_formatted([value for row in self.values for value in row]))
        return [[next(flat) for _ in row] for row in self.values]

    def to_dict(self) -> dict[str, Any]:
        values = {"rows": list(self.rows), "columns": list(self.columns), "values": [list(row) for row in self.values]}
        return {"caption": self.caption, **values, "note": self.note}


@dataclass(frozen=True)
class Step:
    """One step: what is computed, the equation, the same with the numbers in it, and tables of inputs or results."""

    title: str
    text: str = ""
    equation: str = ""
    lines: tuple[str, ...] = ()
    tables: tuple[LabeledTable, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "text": self.text,
            "equation": self.equation,
            "lines": list(self.lines),
            "tables": [table.to_dict() for table in self.tables],
        }


def matrix(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    caption: str = "",
    shaded: bool = False,
    around: int | None = None,
) -> LabeledTable:
    """A table of a matrix (or of a vector, as one row), cut to `MOST` rows and columns.

    Columns without names are numbered from 1. The row `around` is among those that are kept.
    """
    values = values.detach().float().cpu()
    values = values[None] if values.ndim == 1 else values
    n_rows, n_columns = values.shape
    columns = [str(i + 1) for i in range(n_columns)] if columns is None else columns
    first = 0 if around is None else min(max(around + 1 - MOST, 0), max(n_rows - MOST, 0))
    kept_rows, kept_columns = range(first, min(first + MOST, n_rows)), range(min(MOST, n_columns))
    cut = tuple(tuple(float(values[r, c]) for c in kept_columns) for r in kept_rows)
    notes = [
        f"{len(kept)} of {count} {what}"
        for kept, count, what in ((kept_rows, n_rows, "rows"), (kept_columns, n_columns, "columns"))
        if len(kept) < count
    ]
    return LabeledTable(
        tuple(rows[r] for r in kept_rows),
        tuple(columns[c] for c in kept_columns),
        cut,
        caption,
        shaded,
        note=_shown(notes),
    )


def listing(
    rows: Sequence[str],
    columns: Mapping[str, Values],
    caption: str = "",
    by: str | None = None,
) -> LabeledTable:
    """A table of several quantities of the same things, such as the score and the weight of each key.

    Of more than `MOST` rows, the rows with the largest values in the column `by` are kept, in their order, with their
    indices; without `by`, the first rows.
    """
    lists = {name: _listed(values) for name, values in columns.items()}
    count = len(rows)
    kept, note = list(range(count)), ""
    if count > MOST:
        if by is None:
            kept, note = kept[:MOST], f"{MOST} of {count} rows"
        else:
            size = [-math.inf if value is None else float(value) for value in lists[by]]
            kept = sorted(sorted(range(count), key=lambda i: -size[i])[:MOST])
            note = f"the {MOST} of {count} rows with the largest {by}"
            if by.startswith("weight"):
                rest = sum(size[i] for i in range(count) if i not in set(kept))
                note += f"; that of the others adds up to {number(rest)}"
            rows = [f"{i} {row}" for i, row in enumerate(rows)]
    values = tuple(tuple(column[i] for column in lists.values()) for i in kept)
    return LabeledTable(
        tuple(rows[i] for i in kept), tuple(lists), values, caption, False, True, _shown([note] if note else [])
    )


def number(value: float, whole: bool = False) -> str:
    """A number as it is displayed: four decimals, or none if it is whole."""
    if math.isinf(value) or abs(value) > 1e30:
        return "−∞" if value < 0 else "∞"
    if math.isnan(value):
        return "NaN"
    if whole:
        text = f"{value:.0f}"
    elif value and abs(value) < 5e-5:
        text = f"{value:.0e}"
    else:
        text = f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"
    text = text if float(text.replace(",", "")) else text.lstrip("-")
    return text.replace("-", "−")


def numbers(values: Values) -> list[str]:
    """Numbers as they are displayed together: without decimals if all are whole."""
    return _formatted(_listed(values))


def dot(a: Values, b: Values, most: int = 4) -> str:
    """`a1·b1 + a2·b2 + … = Σ` with numbers; only the sum if there are more than `most` terms."""
    first, second = _listed(a), _listed(b)
    pairs = [(float(x or 0), float(y or 0)) for x, y in zip(first, second, strict=True)]
    total = numbers([math.fsum(x * y for x, y in pairs)])[0]
    if len(pairs) > most:
        return total
    terms = " + ".join(f"{_factor(x)} · {_factor(y)}" for x, y in pairs)
    return f"{terms} = {total}"


def _factor(value: float) -> str:
    text = number(value, whole=value == round(value))
    return f"({text})" if value < 0 else text


def _listed(values: Values) -> list[Value]:
    return values.detach().float().cpu().flatten().tolist() if isinstance(values, Tensor) else list(values)


def _formatted(values: Sequence[Value]) -> list[str]:
    finite = [v for v in values if isinstance(v, int | float) and math.isfinite(v) and abs(v) < 1e30]
    whole = all(abs(v - round(v)) < 1e-6 and abs(v) < 1e7 for v in finite)
    return ["" if v is None else v if isinstance(v, str) else number(float(v), whole) for v in values]


def _shown(notes: Sequence[str]) -> str:
    return f"Shown: {' and '.join(notes)}." if notes else ""
