"""Regular expressions of files and recipes that others wrote: matching them ends, whatever they are."""

from __future__ import annotations

import re
from collections.abc import Callable

import regex

from .spec import brief

SECONDS = 1.0  # for one text; the usual expression takes microseconds


def check(pattern: str) -> None:
    """Raise ValueError for what is not a regular expression of Python's `re`."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{brief(pattern)} is not a regular expression: {error}") from None


def match(pattern: str, text: str) -> regex.Match[str] | None:
    """`re.match`. Raises ValueError for what is not a regular expression, and after a second."""
    return _within_time(regex.match, pattern, text)


def search(pattern: str, text: str) -> regex.Match[str] | None:
    """`re.search`. Raises ValueError as `match` does."""
    return _within_time(regex.search, pattern, text)


def _within_time(find: Callable[..., regex.Match[str] | None], pattern: str, text: str) -> regex.Match[str] | None:
    check(pattern)
    try:
        return find(pattern, text, timeout=SECONDS)
    except TimeoutError:
        raise ValueError(
            f"the regular expression {brief(pattern)} took longer than {SECONDS:g} s on {brief(text)}; write it without "
            "repetitions of repetitions such as (a+)+"
        ) from None
    except (regex.error, RecursionError) as error:
        raise ValueError(f"{brief(pattern)} is not a regular expression: {error}") from None
