"""The classes of labelled examples: which there are, and which number each is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Literal

from ..core.spec import nearest
from .sources import Example, Skipped, Source

MOST = 10_000  # classes; more are numbers that somebody took for classes
_SCANNED = 1_000_000

Unseen = Literal["refuse", "skip"]
"""What becomes of examples with a class that the training data don't have."""


def of_source(source: Source, name: str = "label") -> tuple[str, ...]:
    """The classes in the training data, sorted, numbers by their value. Raises ValueError where they are none."""
    examples = islice(source.examples("train", shuffle=False), _SCANNED)
    return sorted_classes(label_of(example, name) for example in examples)


def sorted_classes(labels: Iterable[str]) -> tuple[str, ...]:
    found = set(labels)
    if len(found) < 2:
        raise ValueError(
            f"the training data have {len(found)} class ({', '.join(found)}); there have to be two or more"
        )
    if len(found) > MOST:
        raise ValueError(f"the training data have {len(found):,} different labels, which are hardly classes; see data")
    return tuple(sorted(found, key=_by_value))


def _by_value(label: str) -> tuple[bool, float, str]:
    number = label.lstrip("+-").replace(".", "", 1).isdecimal()
    return not number, float(label) if number else 0.0, label


def label_of(example: Example, name: str = "label") -> str:
    """An example's class as text. Raises ValueError where it has none."""
    label: Any = example.get(name)
    if label is None or label == "":
        raise ValueError(
            f"{example.get('where', 'an example')} has no {name}; each example needs the class that it is of"
        )
    return str(label)


def number_of(example: Example, classes: tuple[str, ...], unseen: Unseen, name: str = "label") -> int | Skipped:
    """The place of an example's class among all. Raises ValueError for another one, unless these are skipped."""
    label = label_of(example, name)
    if label in classes:
        return classes.index(label)
    if unseen == "skip":
        return Skipped("of a class that the training data don't have")
    raise ValueError(
        f"{example.get('where', 'an example')}: there is no class {label!r} in the training data; "
        f"{nearest(label, classes)}; task.unseen=skip leaves such examples out"
    )
