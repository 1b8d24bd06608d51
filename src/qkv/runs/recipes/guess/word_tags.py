"""Recognize tables with a tag for each word, and records with a list of words and a list of tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.metrics.entities import scheme_of
from ....core.spec import brief, counted
from ....data.classes import class_name
from ....data.files.compressed import suffix_of
from ....data.files.parquet import SUFFIX
from ....data.readers.jsonl import TAG_FIELDS
from .column import Column
from .result import Guess, setting

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


def lists_of_tags(path: Path, fields: Mapping[str, Sequence[Any]], count: int) -> Guess | None:
    """Return the recipe for records with a list of words and a list of equally many tags, as in the library `datasets`."""
    lists = {name: values for name, values in fields.items() if values and all(isinstance(one, list) for one in values)}
    words = next(
        (name for name, values in lists.items() if all(isinstance(one, str) for row in values for one in row)), None
    )
    if words is None:
        return None
    sizes = [len(row) for row in lists[words]]
    found = [name for name, values in lists.items() if name != words and _are_tags(values, sizes)]
    if not found:
        return None
    tags = min(found, key=lambda name: TAG_FIELDS.index(name) if name in TAG_FIELDS else len(TAG_FIELDS))
    kinds = {str(class_name(one)) for row in lists[tags] for one in row}
    parquet = suffix_of(path) == SUFFIX  # its schema may contain the names of numeric tags
    metric = ("training.metric=accuracy",) if scheme_of(kinds) == "plain" and not parquet else ()
    kind = f"data.kind={'parquet' if parquet else 'jsonl'}"
    settings = (kind, setting("data.path", path), setting("data.word", words), setting("data.tag", tags), *metric)
    seen = [f"{counted(count, 'sentence')}: {brief(words)} holds words, and {brief(tags)} their tags ({_some(kinds)})"]
    if all(map(str.isdecimal, kinds)) and not parquet:
        seen.append(
            "the tags are numbers, and the file has no names for them; with names such as B-PER, entities would be counted"
        )
    if others := ", ".join(name for name in found if name != tags):
        seen.append(f"{others} could be the tags too (data.tag)")
    return Guess("tag", settings, tuple(seen))


def _are_tags(values: Sequence[list[Any]], sizes: Sequence[int]) -> bool:
    """Whether the lists have these sizes and contain only a few different names or whole numbers."""
    kinds = {class_name(one) for row in values for one in row}
    alike = len(values) == len(sizes) and all(len(row) == size for row, size in zip(values, sizes, strict=True))
    return alike and None not in kinds and 1 < len(kinds) < sum(sizes) / 2
