"""What a source holds out for validation and test where the user gave it nothing for them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .shuffle import text_hash
from .sources import TEXTS, Example, Skipped, Source, Split, Table

SHARE = 50  # one in so many examples is held out for each split that has no file of its own
MOST = 1000  # and about so many at most
_SCANNED = 200_000  # examples looked at to choose them


class HoldingSource(Source):
    """A source with a training table and, if the user has them, tables for validation and test.

    A split that wasn't given is held out of the training table: about 2 % of it, at most about 1,000 examples, at
    least one, chosen by the hash of the example. So equal examples are held out together, the choice is the same in
    every run, and it doesn't depend on a seed.
    """

    @property
    def fixed(self) -> bool:
        return True

    @abstractmethod
    def gives(self, split: Split) -> bool:
        """Whether the user gave this split."""

    @abstractmethod
    def open(self, split: Split) -> Table:
        """All examples that were given for a split."""

    @abstractmethod
    def stamp(self) -> tuple[Hashable, ...]:
        """What the training table is made of; another value when it changes. Its first member names it to a reader."""

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """Examples with equal keys are held out together."""
        return _hash(example)

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if split != "train" and self.gives(split):
            return self.open(split)
        whole = self.open("train")
        if not self._missing:
            return whole
        cut = _choose(self, self.stamp())
        return Remaining(whole, self, cut.bound) if split == "train" else Chosen(whole, cut.members[split])

    @property
    def _missing(self) -> tuple[Split, ...]:
        splits: tuple[Split, ...] = ("validation", "test")
        return tuple(split for split in splits if not self.gives(split))

    def notes(self) -> tuple[str, ...]:
        if not self._missing:
            return ()
        cut = _choose(self, self.stamp())
        held = " and ".join(f"{len(cut.members[split]):,} for {split}" for split in self._missing)
        return (f"held out of the training data by hash: {held}",)


class FileSource(HoldingSource):
    """A source of files."""

    @abstractmethod
    def paths(self, split: Split) -> tuple[Path, ...]:
        """The files of a split; none where the user gave none."""

    def gives(self, split: Split) -> bool:
        return bool(self.paths(split))

    def stamp(self) -> tuple[Hashable, ...]:
        paths = self.paths("train")
        return ", ".join(map(str, paths)), *((stat.st_size, stat.st_mtime_ns) for stat in (p.stat() for p in paths))


def _hash(example: Example) -> int:
    """Of its texts, or of where it stands where it is no text."""
    if any(name in example for name in TEXTS):
        pair = [example["pair"]] if "pair" in example else []  # a second text beside the first
        return text_hash(*(example.get(name, "") for name in TEXTS), *pair)
    return text_hash(str(example["where"]))


class _Choice(NamedTuple):
    bound: int  # examples whose hash is at most this are not trained on, wherever they stand
    members: dict[Split, tuple[int, ...]]


@lru_cache(maxsize=16)
def _choose(source: HoldingSource, stamp: tuple[Hashable, ...]) -> _Choice:
    """Hold out the examples with the smallest hashes. The stamp renews the choice when the data change."""
    table, missing = source.open("train"), source._missing
    places: dict[int, dict[int, int]] = {}  # key → where each different example that has it stands first
    bad = Counter[str]()
    for i in range(min(len(table), _SCANNED)):
        example = table[i]
        if isinstance(example, dict):
            places.setdefault(source.hold_out_key(table, i, example), {}).setdefault(_hash(example), i)
        elif example is not None:
            bad[str(example)] += 1
    each = max(1, min(len(places) // SHARE, MOST))
    if len(places) <= each * len(missing):
        beside = "".join(f", and {n:,} {reason}" for reason, n in bad.most_common(1))
        there = f"only {len(places)} different example(s)" if places else "no example that can be used"
        raise ValueError(
            f"{stamp[0]}: {there} there{beside}; that is too few to hold out some for {' and '.join(missing)}, so give "
            "data for these"
        )
    ranked = sorted(places)[: each * len(missing)]
    members = {
        split: tuple(sorted(i for key in ranked[n * each : (n + 1) * each] for i in places[key].values()))
        for n, split in enumerate(missing)
    }
    return _Choice(ranked[-1], members)


class Remaining:
    """A table without what is held out of it."""

    def __init__(self, table: Table, source: HoldingSource, bound: int) -> None:
        self._table, self._source, self._bound = table, source, bound
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        entry = self._table[i]
        if isinstance(entry, dict) and self._source.hold_out_key(self._table, i, entry) <= self._bound:
            return None
        return entry


class Chosen:
    """Some entries of a table."""

    def __init__(self, table: Table, indices: tuple[int, ...]) -> None:
        self._table, self._indices = table, indices
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        return self._table[self._indices[i]]
