"""Class labels of examples: their names, their order, and the index of each."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable
from decimal import Context

import numpy as np

from ..core.spec import brief, counted, nearest
from .source import Example, OnError, Skipped, Source, Split

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")  # characters without width
_LISTED = 5  # classes named in a message
_BETWEEN = (";", "|", ",", "&", "+")  # several labels of one example
MOST = 10_000  # classes; more are likely numbers mistaken for classes
_MISSING = "#N/A N/A,#N/A,#NA,<NA>,N/A,NA,n/a,NULL,null,None,NaN,nan,-NaN,-nan,1.#IND,-1.#IND,1.#QNAN,-1.#QNAN"
MISSING = tuple(_MISSING.split(","))
"""Texts that stand for a missing label: the same as in `pandas.read_csv`."""


def is_missing(value: object) -> bool:
    """Whether a cell is empty: None, or a data frame's NaN, NA or NaT."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def missing_label(value: object, column: object, missing: Container[str] | None = None) -> Skipped | None:
    """Why an example with this label, score or answer in a column is skipped: it is empty, or one of the texts that are
    `missing`, by default `MISSING`. None if it has one."""
    value = value.strip() if isinstance(value, str) else value
    if is_missing(value) or value == "":
        return Skipped(f"without a {column!r}")
    listed = isinstance(value, str) and value in (MISSING if missing is None else missing)
    return Skipped(f"whose {column!r} is {value!r} (one of data.missing)") if listed else None


def class_name(label: object) -> str | None:
    """A class name, from a string or a whole number (which data frames with missing ones hold as 1.0); None for anything
    else, such as a missing label, which is a `Skipped` with the reason."""
    if isinstance(label, str):
        return None if isinstance(label, Skipped) else label
    if isinstance(label, int | np.integer):
        return None if isinstance(label, bool) else str(int(label))
    return str(int(label)) if isinstance(label, float | np.floating) and label.is_integer() else None


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Classes sorted: numbers first, by size, then names. Numbers of one size, such as 1 and 01, are sorted as names, so
    the order is the same in every process."""
    return tuple(sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name)))


def classes_of_source(source: Source) -> tuple[str, ...]:
    """The classes in the training data. Raises ValueError if an example has none, or if there are too few or too many."""
    examples = source.examples("train", shuffle=False)
    names = {label_of(example) for example in examples if not isinstance(example.get("label"), Skipped)}
    if len(names) < 2:
        raise ValueError(
            f"the training data have {len(names)} class ({', '.join(names)}); there have to be two or more"
        )
    if len(names) > MOST:
        raise ValueError(
            f"the training data have {len(names):,} different labels, too many for classes; check the data"
        )
    return sorted_classes(names)


def spellings(names: Iterable[str]) -> list[list[str]]:
    """Groups of classes that differ only in case, spaces, hyphens, characters without width or the form of a number, as
    `Business` and `BUSINESS ` do."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_spelling(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def different(group: list[str]) -> str:
    """A sentence on classes that `spellings` found."""
    listed = ", ".join(map(repr, group[:_LISTED])) + (", …" if len(group) > _LISTED else "")
    return f"{listed} are {len(group)} classes that differ only in spelling; spell them alike if they mean the same"


def joined(names: Iterable[str]) -> list[str]:
    """A sentence on classes that look like several labels with a mark between them, such as `red;blue` beside `red;green`:
    each part is in another class too."""
    names = list(names)
    for mark in _BETWEEN:
        parts = {name: list(map(str.strip, name.split(mark))) for name in names}
        several = [name for name in names if len(parts[name]) > 1 and all(parts[name])]
        counts = Counter(part for name in names for part in set(parts[name]))
        if len(several) > 1 and all(counts[part] > 1 for name in several for part in parts[name]):
            return [
                f"{len(several):,} classes look like several labels with {mark!r} between them, such as "
                f"{brief(several[0])}; each combination is learned as one class"
            ]
    return []


def _spelling(name: str) -> str:
    plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", name)).casefold().strip()
    letters = re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", plain)  # not before or behind: −1 is not 1, and the grade A- not A
    with contextlib.suppress(ArithmeticError):
        digits = Context(prec=len(letters) + 1)  # exact: large ids may differ in their last digit alone
        return str(digits.create_decimal(letters).normalize(digits))
    return letters


def check_classes(source: Source, split: Split, classes: tuple[str, ...]) -> None:
    """Raises ValueError if an example of a split has no class, or one that is not among these, the classes of the
    training data. Examples whose label is missing are skipped in training."""
    labels = getattr(source.table(split), "labels", None)  # without reading pictures
    examples = source.examples(split, shuffle=False) if labels is None else ({"label": label} for label in labels)
    unknown, known = Others(), frozenset(classes)
    for example in examples:
        if isinstance(example.get("label"), Skipped):
            continue
        name = class_name(example.get("label"))
        if not name:
            label = example.get("label")
            what = "no label" if label in (None, "") else f"the label {brief(label)}, which is no class"
            raise ValueError(
                f"{example.get('where', f'an example of the {split} split')} has {what}; give it one, or skip such examples "
                "with task.on_error=skip"
            )
        if name not in known:
            unknown.add(name, example)
    if not unknown.counts:
        return
    what, them = ("a class", "it") if len(unknown.counts) == 1 else (f"{len(unknown.counts):,} classes", "them")
    at_top = any(where.endswith(", line 1") for where in unknown.first.values())
    header = "; if line 1 holds column names, give data.header=true" if at_top else ""
    raise ValueError(
        f"the {split} split has {what} that the training data lack: {unknown.listed('example')}; give training examples of "
        f"{them}, or skip such examples with task.on_error=skip{header}"
    )


class Others:
    """Names in a split that the training data lack: how often each occurs, and where it does so first."""

    def __init__(self) -> None:
        self.counts, self.first = Counter[str](), dict[str, str]()

    def add(self, name: str, example: Example) -> None:
        self.counts[name] += 1
        self.first.setdefault(name, f", first {example['where']}" if "where" in example else "")

    def listed(self, unit: str) -> str:
        """The most frequent ones in words; `unit` is what was counted."""
        shown = [
            f"{brief(name)} ({counted(n, unit)}{self.first[name]})" for name, n in self.counts.most_common(_LISTED)
        ]
        return ", ".join(shown) + (", …" if len(self.counts) > _LISTED else "")


def label_of(example: Example) -> str:
    """An example's class. Raises ValueError if it has none."""
    label = class_name(example.get("label"))
    if not label:
        raise ValueError(f"{example.get('where', 'an example')} has no label; each example needs a class")
    return label


def class_index(example: Example, classes: tuple[str, ...], on_error: OnError) -> int | Skipped:
    """The index of an example's class. Raises ValueError for an unknown class, unless `on_error` skips it."""
    if isinstance(missing := example.get("label"), Skipped):
        return missing
    label = label_of(example)
    if label in classes:
        return classes.index(label)
    if on_error == "skip":
        return Skipped("of a class that the training data don't have")
    raise ValueError(
        f"{example.get('where', 'an example')}: there is no class {brief(label)} in the training data; "
        f"{nearest(label, classes)}; task.on_error=skip skips such examples"
    )
