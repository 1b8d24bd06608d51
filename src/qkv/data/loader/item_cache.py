"""In-memory cache of the items that tasks make of training examples, so texts are tokenized only once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..source import Counts, Example, Skipped, Table
from ..task import Item, Task
from ..tokenizers.protocol import Encoder

Items = Sequence[Item | Skipped]
MakeItems = Callable[[list[Example]], Sequence[Items]]


class ItemCache:
    """Caches the items of a table's entries by index, in up to `budget` bytes. Entries that don't fit are processed again
    in every epoch."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._items: dict[int, Items | None] = {}

    def items(self, table: Table, indices: Sequence[int], make: MakeItems, counts: Counts) -> list[Item | Skipped]:
        """Return the items of the entries at `indices`, in that order, and count the entries that are read.

        Entries that are not in the cache are read, and `make` returns the items of each of them. Skipped entries are
        returned among the items; the caller counts them.
        """
        new = self._made(table, [i for i in indices if i not in self._items], make)
        found: list[Item | Skipped] = []
        for i in indices:
            items = new[i] if i in new else self._items[i]
            if items is not None:
                counts.read += 1
                found += items
        self._store(new)
        return found

    def _made(self, table: Table, indices: list[int], make: MakeItems) -> dict[int, Items | None]:
        """Read entries and make their items. An entry of another split has None."""
        made: dict[int, Items | None] = {}
        examples: dict[int, Example] = {}
        for i in indices:
            entry = table[i]
            if entry is None or isinstance(entry, Skipped):
                made[i] = None if entry is None else (entry,)
            else:
                examples[i] = entry
        if examples:
            made |= zip(examples, make(list(examples.values())), strict=True)
        return made

    def _store(self, new: dict[int, Items | None]) -> None:
        """Store entries until the budget is used up. Their size is estimated from a sample."""
        some = list(new.values())[:: len(new) // _MEASURED + 1]
        each = _ENTRY + sum(map(size_of, some)) // max(1, len(some))
        fit = min(len(new), self._left // each)
        self._left -= each * fit
        self._items |= islice(new.items(), fit)


_MAKERS = ("items", "items_of_each", "item", "inputs_of", "inputs")  # methods that may draw at random


def repeats(task: Task, tokenizer: Encoder | None) -> bool:
    """Whether a task's items are the same in every epoch.

    A class that overrides how items are made must override `Task.repeats` too; that of its base class does not count.
    """
    classes = type(task).__mro__
    first = {name: next(i for i, c in enumerate(classes) if name in vars(c)) for name in ("repeats", *_MAKERS)}
    return task.repeats(tokenizer) and all(first["repeats"] <= first[name] for name in _MAKERS)


_MEASURED = 32  # entries of a pool
_ENTRY, _ARRAY = 100, 112  # bytes: an entry of a dictionary with its key, and an array without its numbers


def size_of(value: object) -> int:
    """Estimate the memory of an item and everything in it, in bytes. Shared objects count every time they occur."""
    if isinstance(value, np.ndarray):
        return _ARRAY + value.nbytes
    if isinstance(value, Item):
        return size_of(vars(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + _total(value.values())
    return size + _total(value) if isinstance(value, tuple | list) else size


def _total(values: Iterable[Any]) -> int:
    return sum(map(size_of, values))
