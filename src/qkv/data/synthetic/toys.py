"""Toys that show in a minute whether a model learns at all: copy, reverse or sort a made sequence of symbols."""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Literal, Protocol, Self

from pydantic import Field, model_validator

from ...core.shuffle import mix, text_hash
from ..source import SPLITS, Example, Source, Split, Table

_SYMBOLS = {"letters": string.ascii_lowercase, "digits": string.digits}
HELD_OUT = 10  # one in so many possible examples belongs to each of validation and test


class Toy(Source):
    """Sequences of `symbols` with `separator` between them, their lengths uniform from `shortest` to `longest`.

    Each epoch makes `train` new ones. Validation and test are sequences that training never makes.
    """

    symbols: Literal["letters", "digits"] = "letters"
    shortest: int = Field(default=4, ge=1)
    longest: int = Field(default=12, ge=1)
    separator: str = " "
    train: int = Field(default=20_000, ge=1)
    validation: int = Field(default=500, ge=1)
    test: int = Field(default=500, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.longest < self.shortest:
            raise ValueError(f"longest ({self.longest}) is less than shortest ({self.shortest})")
        if len(_SYMBOLS[self.symbols]) ** self.longest < 100:
            raise ValueError("there are too few such sequences to hold some out; raise longest")
        return self

    @abstractmethod
    def answer(self, symbols: list[str]) -> list[str]:
        """What the model should make of a sequence."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if split != "train":
            return held_out(self, split)
        return Made(self.train, lambda i: self.made(Random(mix(seed, epoch, i)), "train"))

    def made(self, random: Random, split: Split) -> Example:
        """One example of a split."""
        while True:
            symbols = random.choices(_SYMBOLS[self.symbols], k=random.randint(self.shortest, self.longest))
            place = text_hash("".join(symbols)) % HELD_OUT
            if ("validation" if place == 0 else "test" if place == 1 else "train") == split:
                return {"source": self.separator.join(symbols), "target": self.separator.join(self.answer(symbols))}


class Copy(Toy, kind="copy"):
    """a b c → a b c"""

    def answer(self, symbols: list[str]) -> list[str]:
        return symbols


class Reverse(Toy, kind="reverse"):
    """a b c → c b a"""

    def answer(self, symbols: list[str]) -> list[str]:
        return symbols[::-1]


class Sort(Toy, kind="sort"):
    """c a b → a b c"""

    def answer(self, symbols: list[str]) -> list[str]:
        return sorted(symbols)


class Made:
    """A table of examples that are made when they are asked for."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._size, self._make = size, make

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example:
        return self._make(i)


class Maker(Protocol):
    """A source that makes examples of a split, and is told how many it holds out: `validation`, `test`."""

    def made(self, random: Random, split: Split) -> Example: ...


@lru_cache(maxsize=16)
def held_out(source: Maker, split: Split) -> list[Example]:
    """Different sequences of one held-out split: as many as asked for, or all that turn up where there are fewer."""
    random = Random(mix(SPLITS.index(split)))
    found: dict[str, Example] = {}
    for _ in range(20 * getattr(source, split)):
        example = source.made(random, split)
        found.setdefault(example["source"], example)
        if len(found) == getattr(source, split):
            break
    return list(found.values())
