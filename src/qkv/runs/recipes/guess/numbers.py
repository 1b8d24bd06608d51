"""Notes on columns of numbers and classes: cells that hold none, classes that occur once, and columns that are not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ....core.spec import counted
from ....data.files.number_tables import finite, spelling
from .column import LABELS, SCORES, Column

_LISTED = 5
_ENOUGH = 20  # rows that show whether classes repeat
_MOST = 0.5  # of the values of a column that is meant to hold numbers


def odd_scores(column: Column) -> Iterator[str]:
    """Say what training does with values that are not numbers."""
    if said := _no_numbers(column):
        yield f"{said}; training refuses them: correct them, or skip their rows with task.on_error=skip"


def odd_classes(column: Column) -> Iterator[str]:
    """Name classes that are not numbers, if most classes are numbers."""
    if column.numbers > _MOST and (said := _no_numbers(column)):
        yield f"{said}; they are classes beside the numbers: correct them if they are errors"


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


def gaps(column: Column) -> Iterator[str]:
    """Say what training does with cells of a series that hold no number."""
    if said := _no_numbers(column, lacking=True):
        yield f"{said}; they repeat the number above (data.gaps=fill)"


def unused(columns: Sequence[Column]) -> Iterator[str]:
    """Say why a column of numbers, or one that is named like a score or a class, is not used."""
    for column in columns:
        if column.counts_rows and not column.is_index and not column.is_aside:
            yield f"{column.title} is not used: its values, such as {column.filled[0]}, number the rows"
        if column.is_index or column.is_aside or column.is_dates or column.numbers == 1:
            continue
        if column.spelled is not None:
            values = f"its values are numbers with {column.spelled}, such as {column.filled[0][:40]!r}"
            yield f"{column.title} is not used: {values}; write them as plain numbers to predict them"
        elif column.numbers > _MOST:
            yield f"{column.title} is not used: {_no_numbers(column)}; correct them to predict the numbers"
        elif column.is_called(LABELS | SCORES) and column.distinct > 1:
            values = f"its values, such as {column.filled[0][:40]!r}, are neither numbers nor classes"
            yield f"{column.title} is not used: {values}"


def _no_numbers(column: Column, lacking: bool = False) -> str:
    """How many values are no finite numbers, and where the first ones are; empty if all are numbers. With `lacking`, values
    that are missing count too."""
    values = column.placed if lacking else [(at, cell) for at, cell in column.placed if not column.is_missing(cell)]
    odd = [(at, cell) for at, cell in values if finite(cell) is None]
    if not odd:
        return ""
    listed = ", ".join(f"{cell[:40]!r} ({at})" if at else f"{cell[:40]!r}" for at, cell in odd[:_LISTED])
    more = ", …" if len(odd) > _LISTED else ""
    how = Counter(filter(None, (spelling(cell) for _, cell in odd))).most_common(1)
    with_ = f" (numbers with {how[0][0]} are not read)" if how else ""
    verb = "is no finite number" if len(odd) == 1 else "are no finite numbers"
    return (
        f"{len(odd):,} of {counted(len(values), 'value')} of {column.title} that were looked at {verb}: "
        f"{listed}{more}{with_}"
    )
