"""Samples for a report: which outputs of an evaluation are kept and shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

import numpy as np

from ...data.source import Example, Source

T = TypeVar("T")


LEARNED = 50_000  # training examples from which a simple method learns


def learned(source: Source) -> list[Example]:
    """Training examples from which a simple method learns: all, or some drawn by a fixed seed."""
    return list(islice(source.examples("train", seed=0), LEARNED))


def learned_from(examples: Sequence[object]) -> str:
    """A clause on the examples from which a simple method learned."""
    return f"learned from {'the training data' if len(examples) < LEARNED else f'{LEARNED:,} training examples'}"


def evenly(items: Sequence[T], count: int) -> list[T]:
    """Pick at most `count` items, evenly spaced, as neighbors are often alike."""
    count = min(count, len(items))
    return [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)]


def read_of(example: Example) -> str:
    """The text of an example, or both texts of a pair."""
    return " | ".join(example[name] for name in ("text", "pair") if name in example)


class Reservoir(Generic[T]):
    """A uniform random sample of a stream, of at most `size` items (Vitter 1985, algorithm R), with a fixed seed."""

    def __init__(self, size: int) -> None:
        self._size, self._seen = size, 0
        self._kept: list[tuple[int, T]] = []
        self._random = np.random.default_rng(0)

    def add(self, item: T) -> None:
        place = len(self._kept) if self._seen < self._size else int(self._random.integers(self._seen + 1))
        if place < self._size:
            self._kept[place : place + 1] = [(self._seen, item)]
        self._seen += 1

    def take(self, count: int) -> list[T]:
        """Return at most `count` of the items kept, in the order in which they came."""
        return evenly([item for _, item in sorted(self._kept, key=lambda pair: pair[0])], count)
