"""Tables with a tag for each word, which are no classes of texts."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.metrics.entities import scheme_of
from .column import Column

_MOSTLY = 0.9
_FORM = (
    "write one word and its tag on each line, with an empty line after each sentence, and give that file "
    "(qkv train tag data.kind=columns data.path=FILE)"
)


def tags_in(columns: Sequence[Column]) -> str | None:
    """Why a table holds tags of words, with what to do; None if it does not: a column has a tag such as B-PER in each row,
    or as many of them in a cell as another column has words."""
    for column in columns:
        tags = set(column.filled)
        if "O" in tags and scheme_of(tags) != "plain":
            return f"{column.title} holds a tag for each word ({_some(tags)}), a word in each row; {_FORM}"
        each = [set(cell.split()) for cell in column.filled]
        within = set().union(*each)
        if "O" not in within or len(within) > len(each) or scheme_of(within) == "plain":
            continue
        words = next((other for other in columns if other is not column and _counts_alike(other, column)), None)
        if words is not None:
            return f"{column.title} holds a tag for each word of {words.title} ({_some(within)}); {_FORM}"
    return None


def _counts_alike(words: Column, tags: Column) -> bool:
    if len(words.cells) != len(tags.cells):
        return False
    alike = sum(len(a.split()) == len(b.split()) for a, b in zip(words.cells, tags.cells, strict=True))
    return alike > _MOSTLY * len(tags.cells)


def _some(tags: set[str]) -> str:
    return ", ".join(sorted(tags)[:4]) + (" …" if len(tags) > 4 else "")
