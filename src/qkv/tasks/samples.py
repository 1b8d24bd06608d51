"""Choice of the samples that an evaluation shows, and their texts."""

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
