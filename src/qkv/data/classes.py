"""Class labels of examples: their names, their order, and the index of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.spec import nearest
from .source import Example, OnError, Skipped, Source

MOST = 10_000  # classes; more are likely numbers mistaken for classes


def class_name(label: Any) -> str | None:
    """A class name, from a string or an integer; None for anything else."""
    if isinstance(label, str):
        return label
    return str(int(label)) if isinstance(label, int | np.integer) and not isinstance(label, bool) else None


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Classes sorted: numbers first, by size, then names."""
    return tuple(sorted(names, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name)))


def classes_of_source(source: Source) -> tuple[str, ...]:
    """The classes in the training data. Raises ValueError if an example has none, or if there are too few or too many."""
    names = {label_of(example) for example in source.examples("train", shuffle=False)}
    if len(names) < 2:
        raise ValueError(
            f"the training data have {len(names)} class ({', '.join(names)}); there have to be two or more"
        )
    if len(names) > MOST:
        raise ValueError(
            f"the training data have {len(names):,} different labels, too many for classes; check the data"
        )
    return sorted_classes(names)


def label_of(example: Example) -> str:
    """An example's class. Raises ValueError if it has none."""
    label = class_name(example.get("label"))
    if not label:
        raise ValueError(f"{example.get('where', 'an example')} has no label; each example needs a class")
    return label


def class_index(example: Example, classes: tuple[str, ...], on_error: OnError) -> int | Skipped:
    """The index of an example's class. Raises ValueError for an unknown class, unless `on_error` skips it."""
    label = label_of(example)
    if label in classes:
        return classes.index(label)
    if on_error == "skip":
        return Skipped("of a class that the training data don't have")
    raise ValueError(
        f"{example.get('where', 'an example')}: there is no class {label!r} in the training data; "
        f"{nearest(label, classes)}; task.on_error=skip skips such examples"
    )
