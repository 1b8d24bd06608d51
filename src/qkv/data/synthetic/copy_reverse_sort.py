"""Toy tasks that a model learns in a minute: copy, reverse or sort a random sequence of symbols."""

from __future__ import annotations

import string
from abc import abstractmethod
from random import Random
from typing import Literal, Self

from pydantic import Field, model_validator

from ..source import Example, Split
from .base import HashSplitSource, check_range, hashed_split

_SYMBOLS = {"letters": string.ascii_lowercase, "digits": string.digits}


class Toy(HashSplitSource):
    """Sequences of `symbols` with `separator` between them, of uniform length from `shortest` to `longest`.

    Each epoch generates `train` new ones. Validation and test sequences never occur in training.
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
        check_range(self.shortest, self.longest)
        if len(_SYMBOLS[self.symbols]) ** self.longest < 100:
            raise ValueError("there are too few such sequences to hold some out; raise longest")
        return self

    @abstractmethod
    def answer(self, symbols: list[str]) -> list[str]:
        """The target sequence."""

    def draw(self, random: Random, split: Split) -> Example:
        while True:
            symbols = random.choices(_SYMBOLS[self.symbols], k=random.randint(self.shortest, self.longest))
            if hashed_split("".join(symbols)) == split:
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
