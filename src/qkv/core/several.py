"""Arguments that are one text or several, or one path: a single one and a list mean what they say."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .spec import brief, with_article


def texts(value: object, what: str = "texts") -> list[str]:
    """One text, or several in a list, tuple, array, column of a data frame or iterator, as a list.

    Raises ValueError that names the first item that is no text: a string is one text, never its characters.
    """
    return _items(value, what, str, "a text")


def paths(value: object, what: str = "paths", named: str = "a path") -> list[str]:
    """One path, or several, as a list of strings. Raises ValueError as `texts` does."""
    return [os.fspath(item) for item in _items(value, what, (str, os.PathLike), named)]


def inputs(value: object, what: str = "inputs") -> list[str | tuple[str, ...]]:
    """One text or path, or several in a list, in which a tuple of texts is one input. Raises ValueError as `texts` does."""
    items = _items(
        value, what, (str, os.PathLike, tuple), "a text, a path or a tuple of texts", alone=(str, os.PathLike)
    )
    return [tuple(texts(item, what)) if isinstance(item, tuple) else os.fspath(item) for item in items]


def text(value: object, what: str = "the text") -> str:
    """A text. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is a string, not {shown(value)}")
    return value


def path(value: object, what: str = "the path") -> Path:
    """A path that is given as a string or an object. Raises ValueError for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{what} is a string or a path, not {shown(value)}")
    if not (text := os.fspath(value)) or not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{what} is a string or a path, not {shown(value)}")
    return Path(text)


def numbers(least: float, **named: Any) -> None:
    """Check numbers by name; None is allowed. Raises ValueError for another type, NaN and less than `least`."""
    for name, value in named.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= least):
            raise ValueError(f"{name} must be a number of at least {least:g}, not {shown(value)}")


def whole_numbers(least: int, **named: Any) -> None:
    """`numbers` for whole ones."""
    numbers(least, **named)
    for name, value in named.items():
        if value is not None and not isinstance(value, Integral):
            raise ValueError(f"{name} must be a whole number of at least {least}, not {shown(value)}")


def flags(**named: Any) -> None:
    """Check that values are True or False. Raises ValueError for anything else."""
    for name, value in named.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} is True or False, not {shown(value)}")


def instance(value: object, kind: type, what: str, how: str) -> None:
    """Check the type of an argument. Raises ValueError that says `how` to make one."""
    if not isinstance(value, kind):
        raise ValueError(f"{what} has to be of type {kind.__name__}, as {how} makes one, not {shown(value)}")


def shown(value: object) -> str:
    """A value of the wrong type for a message: `3, an int`; None is `None`."""
    if value is None:
        return "None"
    return f"{' '.join(brief(value).split())}, {with_article(type(value).__name__)}"


def _items(value: Any, what: str, allowed: Any, named: str, alone: Any = None) -> list[Any]:
    if isinstance(value, alone or allowed):
        return [value]
    if isinstance(value, bytes | bytearray | Mapping | Set) or not isinstance(value, Iterable):
        raise ValueError(f"{what} are {named} or a list, not {shown(value)}")
    items = list(value)
    wrong = next((i for i, item in enumerate(items) if not isinstance(item, allowed)), None)
    if wrong is not None:
        raise ValueError(f"{what} are {named} or a list, and number {wrong + 1} of them is {shown(items[wrong])}")
    return items
