"""Sources that make their examples by chance, for recipes that run anywhere: what is held out is never trained on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Protocol

from pydantic import Field

from ...core.shuffle import mix, text_hash
from ..source import SPLITS, Example, Source, Split, Table

_FIRST = ("Ka", "Lo", "Mi", "Ta", "Ve", "Ru", "Sa", "Ne", "Do", "Be", "Fa", "Gi", "Ho", "Ju", "Pe", "Zu")
_MIDDLE = ("ra", "li", "mo", "ne", "su", "ti", "ve", "do", "ka", "pe", "nu", "ri")
_LAST = ("n", "s", "l", "r", "th", "ka", "ra", "no", "wi", "x")


class GeneratedSource(Source):
    """Each epoch makes `train` new examples. Those of validation and test are always the same, and training makes none
    that has the `"text"` of one of them."""

    train: int = Field(default=10_000, ge=1)
    validation: int = Field(default=300, ge=1)
    test: int = Field(default=500, ge=1)

    @abstractmethod
    def made(self, random: Random) -> Example:
        """One example, with a `"text"` that tells it from others."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if split == "train":
            return GeneratedTable(self.train, lambda i: self._of(split, Random(mix(seed, epoch, i))))
        return _held_out(self, split)

    def _of(self, split: Split, random: Random) -> Example:
        """One example of a split, to which its text belongs by hash."""
        while True:
            example = self.made(random)
            place = text_hash(example["text"]) % HELD_OUT
            if ("validation" if place == 0 else "test" if place == 1 else "train") == split:
                return example


@lru_cache(maxsize=16)
def _held_out(source: GeneratedSource, split: Split) -> list[Example]:
    """Different examples of a split: as many as asked for, or all that turn up where there are fewer."""
    random, wanted = Random(mix(SPLITS.index(split))), int(getattr(source, split))
    found: dict[str, Example] = {}
    for _ in range(20 * wanted):
        example = source._of(split, random)
        found.setdefault(example["text"], example)
        if len(found) == wanted:
            break
    return list(found.values())


def name(random: Random) -> str:
    """A name of two to four syllables."""
    middle = "".join(random.choices(_MIDDLE, k=random.randint(0, 2)))
    return random.choice(_FIRST) + middle + random.choice(_LAST)


HELD_OUT = 10  # one in so many possible examples belongs to each of validation and test


class GeneratedTable:
    """A table of examples that are made when they are asked for."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._size, self._make = size, make

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example:
        return self._make(i)


class HeldOutGenerator(Protocol):
    """A source that makes examples of a split, and is told how many it holds out: `validation`, `test`."""

    def made(self, random: Random, split: Split) -> Example: ...


@lru_cache(maxsize=16)
def held_out(source: HeldOutGenerator, split: Split) -> list[Example]:
    """Different sequences of one held-out split: as many as asked for, or all that turn up where there are fewer."""
    random = Random(mix(SPLITS.index(split)))
    found: dict[str, Example] = {}
    for _ in range(20 * getattr(source, split)):
        example = source.made(random, split)
        found.setdefault(example["source"], example)
        if len(found) == getattr(source, split):
            break
    return list(found.values())
