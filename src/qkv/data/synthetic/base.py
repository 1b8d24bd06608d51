"""Base classes of generated data sources: examples drawn at random, split by a hash so that none held out is trained on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from random import Random

from pydantic import Field

from ...core.shuffle import mix, text_hash
from ..source import SPLITS, Example, Source, Split, Table

_HELD_OUT = 10  # one in so many possible examples belongs to validation, and as many to test
_FIRST = ("Ka", "Lo", "Mi", "Ta", "Ve", "Ru", "Sa", "Ne", "Do", "Be", "Fa", "Gi", "Ho", "Ju", "Pe", "Zu")
_MIDDLE = ("ra", "li", "mo", "ne", "su", "ti", "ve", "do", "ka", "pe", "nu", "ri")
_LAST = ("n", "s", "l", "r", "th", "ka", "ra", "no", "wi", "x")


def hashed_split(text: str) -> Split:
    """The split that a text belongs to, the same in every run."""
    place = text_hash(text) % _HELD_OUT
    return "validation" if place == 0 else "test" if place == 1 else "train"


class HashSplitSource(Source):
    """Each epoch draws `train` new examples. The `validation` and `test` examples are always the same."""

    @abstractmethod
    def draw(self, random: Random, split: Split) -> Example:
        """One example of a split, with a `"text"` or a `"source"`."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        size = getattr(self, split)
        if split == "train":
            return GeneratedTable(size, lambda i: self.draw(Random(mix(seed, epoch, i)), split))
        return _held_out(self, split, size)


class GeneratedSource(HashSplitSource):
    """A source whose examples are generated at random; a hash of its text decides the split of each."""

    train: int = Field(default=10_000, ge=1)
    validation: int = Field(default=300, ge=1)
    test: int = Field(default=500, ge=1)

    @abstractmethod
    def generate(self, random: Random) -> Example:
        """One example, with a `"text"` or a `"source"` that tells it from others."""

    def draw(self, random: Random, split: Split) -> Example:
        while True:
            example = self.generate(random)
            if hashed_split(_text(example)) == split:
                return example


@lru_cache(maxsize=32)
def _held_out(source: HashSplitSource, split: Split, size: int) -> list[Example]:
    """Different examples of a split: `size` of them, or fewer if there are no more."""
    random = Random(mix(SPLITS.index(split)))
    examples: dict[str, Example] = {}
    for _ in range(20 * size):
        example = source.draw(random, split)
        examples.setdefault(_text(example), example)
        if len(examples) == size:
            break
    return list(examples.values())


def _text(example: Example) -> str:
    return str(example["text"] if "text" in example else example["source"])


class GeneratedTable:
    """A table that generates each example when it is read."""

    def __init__(self, size: int, generate: Callable[[int], Example]) -> None:
        self._size, self._generate = size, generate

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Example:
        return self._generate(i)


def random_name(random: Random) -> str:
    """A name of two to four syllables."""
    middle = "".join(random.choices(_MIDDLE, k=random.randint(0, 2)))
    return random.choice(_FIRST) + middle + random.choice(_LAST)
