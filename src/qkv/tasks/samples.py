"""Which examples are shown, and how what was read is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..data.source import Example

T = TypeVar("T")


def evenly(shown: Sequence[T], count: int) -> list[T]:
    """So many, evenly from all: what stands beside one another is often alike."""
    count = min(count, len(shown))
    return [shown[(2 * i + 1) * len(shown) // (2 * count)] for i in range(count)]


def read_of(example: Example) -> str:
    """A text, or both texts of a pair."""
    return " | ".join(example[name] for name in ("text", "pair") if name in example)
