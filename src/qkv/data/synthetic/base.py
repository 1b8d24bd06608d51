"""Base classes of generated data sources: random examples, assigned to train, validation or test by a hash."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from random import Random

from pydantic import Field

from ..shuffle import mix, text_hash
from ..source import SPLITS, Example, Source, Split, Table, check_split
from ..tables import ComputedTable

_HELD_OUT = 10  # one in ten possible examples belongs to validation, another to test
_FIRST = ("Ka", "Lo", "Mi", "Ta", "Ve", "Ru", "Sa", "Ne", "Do", "Be", "Fa", "Gi", "Ho", "Ju", "Pe", "Zu")
_MIDDLE = ("ra", "li", "mo", "ne", "su", "ti", "ve", "do", "ka", "pe", "nu", "ri")
_LAST = ("n", "s", "l", "r", "th", "ka", "ra", "no", "wi", "x")


def hashed_split(text: str) -> Split:
    """The split that a text belongs to, the same in every run."""
    remainder = text_hash(text) % _HELD_OUT
    return "validation" if remainder == 0 else "test" if remainder == 1 else "train"


def check_range(shortest: int, longest: int) -> None:
    """Raise ValueError if `longest` is less than `shortest`."""
    if longest < shortest:
        raise ValueError(
            f"longest ({longest}) is less than shortest ({shortest}); raise longest, or lower shortest as well"
        )


class HashSplitSource(Source):
    """Each epoch draws `train` new examples. The `validation` and `test` examples are always the same."""

    @abstractmethod
    def draw(self, random: Random, split: Split) -> Example:
        """Generate one example of a split, with a `"text"` or a `"source"`."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        check_split(split)
        size = getattr(self, split)
        if split == "train":
            return ComputedTable(size, lambda i: self.draw(Random(mix(seed, epoch, i)), split))
        return _held_out(self, split, size)


class GeneratedSource(HashSplitSource):
    """A source of randomly generated examples; the hash of an example's text decides its split."""

    train: int = Field(default=10_000, ge=1)
    validation: int = Field(default=300, ge=1)
    test: int = Field(default=500, ge=1)

    @abstractmethod
    def generate(self, random: Random) -> Example:
        """Generate one example, whose `"text"` or `"source"` identifies it."""

    def draw(self, random: Random, split: Split) -> Example:
        while True:
            example = self.generate(random)
            if hashed_split(_text(example)) == split:
                return example


@lru_cache(maxsize=32)
def _held_out(source: HashSplitSource, split: Split, size: int) -> list[Example]:
    """The validation or test examples."""
    random = Random(mix(SPLITS.index(split)))
    return distinct_examples((source.draw(random, split) for _ in range(20 * size)), size)


def distinct_examples(examples: Iterable[Example], size: int) -> list[Example]:
    """The first `size` examples with different texts; fewer if there are no more."""
    distinct: dict[str, Example] = {}
    for example in examples:
        distinct.setdefault(_text(example), example)
        if len(distinct) == size:
            break
    return list(distinct.values())


def _text(example: Example) -> str:
    return str(example["text"] if "text" in example else example["source"])


def random_name(random: Random) -> str:
    """A name of two to four syllables."""
    middle = "".join(random.choices(_MIDDLE, k=random.randint(0, 2)))
    return random.choice(_FIRST) + middle + random.choice(_LAST)
