"""Notes on rows and cells that a spreadsheet has and a table of examples should not: totals, merged cells, other tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ....core.spec import counted
from ....data.files.csv_dialect import filled
from ....data.files.csv_tsv import Cells
from .column import Column

_TOTAL = re.compile(
    r"((grand|sub) ?-?)?(totals?|sums?)|(gesamt|zwischen)?summen?|gesamt|insgesamt|totaux|totale?|suma"
    r"|итого|всего|合计|总计|合計",
    re.I,
)
_LISTED = 5
_ENOUGH = 20  # rows that show whether classes repeat


def odd_rows(cells: Cells, begin: int, width: int, looked: int) -> Iterator[str]:
    """Notes on totals in the last row, and on another table below an empty line, of rows `begin` … `looked` − 1."""
    rows = list(cells.some(begin, looked))
    last = next(cells.some(len(cells) - 1, len(cells)), []) if len(cells) > begin else []
    if total := next((cell.strip() for cell in last if _TOTAL.fullmatch(cell.strip().rstrip(":"))), None):
        yield (
            f"line {cells.line(len(cells) - 1):,} ({total!r}) looks like a row of totals, which is no example; if it is "
            "one, remove it"
        )
    if len(rows) != looked - begin:  # rows that can't be read
        return
    for i, (blank, first, second) in enumerate(zip(rows, rows[1:], rows[2:], strict=False)):
        size = filled(first)
        if not blank and 1 < size != width and size == filled(second):
            yield (
                f"line {cells.line(begin + i + 1):,} ({', '.join(first)[:60]!r}) begins another table, of {size} columns, "
                "below an empty line; save each table as a file"
            )
            return


def single_classes(label: Column) -> Iterator[str]:
    """Classes that occur once, if most values are of classes that repeat."""
    sizes = Counter(label.filled)
    once = [(at, cell) for at, cell in label.placed if sizes.get(cell) == 1]
    if not once or len(label.filled) < _ENOUGH or 4 * len(once) > len(label.filled):
        return
    listed = ", ".join(f"{cell[:40]!r} ({at})" if at else repr(cell[:40]) for at, cell in once[:_LISTED])
    more = ", …" if len(once) > _LISTED else ""
    whose, them = ("row has a class", "it is") if len(once) == 1 else ("rows have a class each", "they are")
    yield (
        f"{len(once):,} {whose} of which no other row that was looked at is: {listed}{more}; remove or correct what is no "
        f"class, such as totals, because from one example {them} hardly learned"
    )


def merged(label: Column) -> Iterator[str]:
    """Advice if a class stands only in the first row of each block, as merged cells are exported."""
    blank = [not cell.strip() for cell in label.cells]
    starts = len(blank) - sum(blank)
    if len(blank) < _ENOUGH or blank[0] or 2 * sum(blank) < len(blank) or sum(blank) < starts:
        return
    column = f"frame[{label.title!r}]"
    yield (
        f"{label.title} is filled in {counted(starts, 'row')}, and empty in those below, as in merged cells; if each value "
        f"is meant for the rows below it, fill them first, with pandas as `{column} = {column}.ffill()`"
    )
