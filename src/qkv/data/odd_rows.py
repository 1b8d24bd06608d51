"""Notes on rows that tables of examples should not have, as spreadsheets do: totals, notes, merged cells, other tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum, isclose

from ..core.spec import counted

Cells = Sequence[str]
Row = tuple[int, Cells]
"""A row with its line in the file."""

_TOTAL = re.compile(
    r"((grand|sub) ?-?)?(totals?|sums?)|(gesamt|zwischen)?summen?|gesamt|insgesamt|totaux|totale?|suma"
    r"|итого|всего|合计|总计|合計",
    re.I,
)
_WITHIN = re.compile(
    r"(grand|sub)[ -]?totals?|zwischensummen?|sous-totaux|sous-total|промежуточный итог|小计|小計", re.I
)
_STATISTIC = re.compile(
    r"averages?|avg\.?|means?|medians?|min(imum)?|max(imum)?|count|st(andar)?d\.? ?dev(iation)?\.?|mittelwert|durchschnitt"
    r"|moyennes?|promedio|media|среднее",
    re.I,
)
_FOOTNOTE = re.compile(
    r"(sources?|notes?|n\.?b\.?|quellen?|anmerkung(en)?|hinweise?|stand|fuentes?|font[ei]|notas?|remarques?|remarks?"
    r"|источник|примечани[ея]|来源|注|出典)\s*[:：].*"
    r"|(data from|(last )?updated|generated|exported|created|retrieved|downloaded)\b.*\b(on|by|from|at|\d{4})\b.*"
    r"|([*†‡§]+|[¹²³⁴⁵])\s*[^\s*†‡§].*|(©|\(c\)|copyright\b).*",
    re.I | re.S,
)
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_MARKS = {"'": "'", "`": "`", "“": "”", "„": "“", "«": "»"}  # by which programs or people may quote cells
_FEW = 12  # rows, among which one odd cell is told
_LAST = 5  # rows at the end that may hold totals
_NOTES = 10  # and footnotes
_LISTED = 5
_ENOUGH = 20  # rows that show whether cells repeat
_SUMMED = 5  # rows whose sum is no coincidence


def odd_rows(
    file: str, rows: Sequence[Row], width: int, whole: bool, are_names: Callable[[Cells, Sequence[Cells]], bool]
) -> Iterator[str]:
    """Notes on odd rows among some rows of a file with a table of `width` columns, its last ones among them. `whole` says
    that these are all rows, and `are_names(row, below)` whether a row holds the names of the columns below it."""
    notes = _footnotes(rows, width)
    yield from _totals(file, [row for row in rows if _filled(row) and row not in notes], whole)
    if notes:
        yield _no_example(file, [(line, _filled((line, cells))[0]) for line, cells in notes], "footnote")
    yield from _other_tables(file, rows, width, are_names)


def merged(column: str | int, cells: Cells) -> Iterator[str]:
    """Advice if a column, by name or number, is filled only in the first row of each block, as merged cells are exported."""
    blank = [not cell.strip() for cell in cells]
    starts = len(blank) - sum(blank)
    if len(blank) < _ENOUGH or blank[0] or 2 * sum(blank) < len(blank) or sum(blank) < starts:
        return
    title = column if isinstance(column, str) else f"column {column}"
    values = f"frame[{column!r}]"
    yield (
        f"{title} is filled in {counted(starts, 'row')}, and empty in those below, as in merged cells; if each value "
        f"is meant for the rows below it, fill them first, with pandas as `{values} = {values}.ffill()`"
    )


def beside(file: str, names: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """A note on a column without a name and a value between others, as between two tables side by side."""
    for i, name in enumerate(names):
        more = [other for other in names[i + 1 :] if other]
        if name or not any(names[:i]) or not more or any(len(row) > i and row[i].strip() for _, row in rows):
            continue
        yield (
            f"column {i + 1} of {file!r} is empty, as between two tables side by side; if the columns behind it "
            f"({', '.join(more)[:80]}) are another table, save each table as a file"
        )
        return


def _filled(row: Row) -> list[str]:
    """The cells of a row that are filled."""
    return [cell.strip() for cell in row[1] if cell.strip()]


def _no_example(file: str, found: Sequence[tuple[int, str]], what: str, many: str = "footnotes") -> str:
    """A sentence on lines that hold no examples, by a cell of each."""
    listed = ", ".join(f"{line:,} ({cell[:40]!r})" for line, cell in found[:_LISTED])
    if len(found) == 1:
        return f"line {listed} of {file!r} looks like a {what}, which is no example; if it is one, remove it"
    more = ", …" if len(found) > _LISTED else ""
    return f"lines {listed}{more} of {file!r} look like {many}, which are no examples; if they are, remove them"


def _totals(file: str, full: Sequence[Row], whole: bool) -> Iterator[str]:
    """A note on rows of totals and other statistics: the last ones, subtotals anywhere, and sums without a word."""
    found: list[tuple[int, str]] = []
    for at, row in enumerate(full):
        cells = [cell.rstrip(":") for cell in _filled(row)]
        for pattern in (_TOTAL, _STATISTIC) if at >= len(full) - _LAST else (_WITHIN,):
            word = next((cell for cell in cells if pattern.fullmatch(cell)), None)
            numbers = all(_NUMBER.match(cell) for cell in cells if cell != word)
            if word is not None and (numbers or (pattern is _TOTAL and at == len(full) - 1)):
                found.append((row[0], word))
                break
    if whole and not found and (cell := _sum(full)) is not None:
        line, value, column = cell
        yield (
            f"line {line:,} of {file!r} ends the table with {value}, the sum of column {column}; if it is a row of totals, "
            "which is no example, remove it"
        )
    if found and (len(found) <= _LAST or 4 * len(found) < len(full)):
        yield _no_example(file, found, "row of totals", "rows of totals")


def _sum(full: Sequence[Row]) -> tuple[int, str, int] | None:
    """The line, value and column of a cell in the last row that is the sum of the cells above it."""
    for column in range(max((len(cells) for _, cells in full), default=0)):
        values = [cells[column].strip() for _, cells in full if len(cells) > column and cells[column].strip()]
        numbers = [float(value) for value in values if _NUMBER.fullmatch(value)]
        rest, last = numbers[:-1], full[-1][1]
        if (
            len(rest) < _SUMMED
            or len(values) - len(numbers) > 1
            or values[-1] != (last[column] if len(last) > column else "")
        ):
            continue  # a value that is no number is the column's name
        if max(map(abs, rest)) < abs(numbers[-1]) and isclose(numbers[-1], fsum(rest), rel_tol=1e-9):
            return full[-1][0], values[-1], column + 1
    return None


def _footnotes(rows: Sequence[Row], width: int) -> list[Row]:
    """Rows at the end that begin as footnotes do, as no other row does, or that have fewer cells than columns, below an
    empty line."""
    full = [row for row in rows if _filled(row)]
    begun = [row for row in full if _FOOTNOTE.fullmatch(_filled(row)[0])]
    found = begun if len(begun) < len(full) and all(row in full[-_NOTES:] for row in begun) else []
    blank = max((i for i, row in enumerate(rows) if not _filled(row)), default=len(rows))
    tail = [row for row in rows[blank + 1 :] if _filled(row)]
    narrow = width > 1 and len(tail) < _SUMMED and all(len(_filled(row)) < width for row in tail)
    found += [row for row in tail if row not in found] if narrow and len(tail) < len(full) else []
    return sorted(row for row in found if not _TOTAL.fullmatch(_filled(row)[0].rstrip(":")))


def _other_tables(
    file: str, rows: Sequence[Row], width: int, are_names: Callable[[Cells, Sequence[Cells]], bool]
) -> Iterator[str]:
    """A note on another table below an empty line: of another number of columns, or with names above its columns."""
    for i, (blank, first, second) in enumerate(zip(rows, rows[1:], rows[2:], strict=False)):
        if _filled(blank) or not (size := _size(first)) == _size(second) > 1:
            continue
        below = [cells for _, cells in rows[i + 2 :] if any(map(str.strip, cells))]
        if size != width or (len(below) >= _SUMMED and are_names(first[1][:size], below)):
            begun = f"line {first[0]:,} ({', '.join(first[1])[:60]!r}) of {file!r}"
            yield f"{begun} begins another table, of {size} columns, below an empty line; save each table as a file"
            return


def _size(row: Row) -> int:
    """The number of cells without empty ones at the end."""
    return max((i + 1 for i, cell in enumerate(row[1]) if cell.strip()), default=0)


def enclosed(file: str, rows: Sequence[Row], quote: str) -> Iterator[str]:
    """Yield a note on columns in which many cells begin and end with marks, which may be another way of quoting."""
    for column in range(max((len(cells) for _, cells in rows), default=0)):
        cells = [(line, cells[column].strip()) for line, cells in rows if column < len(cells) and cells[column].strip()]
        for mark, end in _MARKS.items():
            found = [line for line, cell in cells if len(cell) > 2 and cell[0] == mark and cell[-1] == end]
            if mark == quote or not found or (len(cells) > _FEW and 3 * len(found) < len(cells)):
                continue
            lines = ", ".join(f"{line:,}" for line in found[:_LISTED]) + (", …" if found[_LISTED:] else "")
            advice = ' (if they quote cells, data.quote="\'" reads them so)' if mark == "'" else ""
            yield (
                f"{counted(len(found), 'cell')} of column {column + 1} of {file!r} {'stand' if found[1:] else 'stands'} "
                f"between {mark} and {end} (line {lines}), which are read as text{advice}"
            )


def divided(file: str, rows: Sequence[Row], separators: Mapping[str, str]) -> Iterator[str]:
    """Yield a note on each column all of whose cells contain another separator the same number of times. `separators` maps
    each separator to its name in settings."""
    for column in range(max((len(cells) for _, cells in rows), default=0)):
        cells = [cells[column] if column < len(cells) else "" for _, cells in rows if any(cells)]
        for separator, name in separators.items():
            counts = {cell.count(separator) for cell in cells}
            if len(cells) > 1 and len(counts) == 1 and 0 not in counts:
                yield (
                    f"each cell of column {column + 1} of {file!r} holds {counted(counts.pop(), name)}; if this separates "
                    f"cells, give data.sep={name}"
                )
