"""Sources of files, and what they hold out for validation and test where the user gave no files for them."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .shuffle import text_hash
from .sources import Example, Skipped, Source, Split, Table

SHARE = 50  # one in so many examples is held out for each split that has no file of its own
MOST = 1000  # and about so many at most
_SCANNED = 200_000  # examples looked at to choose them


class FileSource(Source):
    """A source with a training file and, if the user has them, files for validation and test.

    A split without a file of its own is held out of the training file: about 2 % of it, at most about 1,000 examples,
    at least one, chosen by the hash of the example. So equal examples are held out together, the choice is the same
    in every run, and it doesn't depend on a seed.
    """

    @abstractmethod
    def paths(self, split: Split) -> tuple[Path, ...]:
        """The files of a split; none where the user gave none."""

    @abstractmethod
    def open(self, split: Split) -> Table:
        """All examples in the files of a split."""

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """Examples with equal keys are held out together."""
        return _hash(example)

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if self.paths(split) and split != "train":
            return self.open(split)
        whole = self.open("train")
        if not self._missing:
            return whole
        cut = _choose(self, tuple((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self.paths("train")))
        return Remaining(whole, self, cut.bound) if split == "train" else Chosen(whole, cut.members[split])

    @property
    def _missing(self) -> tuple[Split, ...]:
        splits: tuple[Split, ...] = ("validation", "test")
        return tuple(split for split in splits if not self.paths(split))

    def notes(self) -> tuple[str, ...]:
        if not self._missing:
            return ()
        cut = _choose(self, tuple((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self.paths("train")))
        held = " and ".join(f"{len(cut.members[split]):,} for {split}" for split in self._missing)
        return (f"held out of the training file by hash: {held}",)


def _hash(example: Example) -> int:
    return text_hash(*(example.get(name, "") for name in ("source", "target", "text")))


class _Choice(NamedTuple):
    bound: int  # examples whose hash is at most this are not trained on, wherever they stand
    members: dict[Split, tuple[int, ...]]


@lru_cache(maxsize=16)
def _choose(source: FileSource, files: tuple[tuple[str, int, int], ...]) -> _Choice:
    """Hold out the examples with the smallest hashes. `files` (name, size, time) renews the choice when they change."""
    table, missing = source.open("train"), source._missing
    places: dict[int, dict[int, int]] = {}  # key → where each different example that has it stands first
    for i in range(min(len(table), _SCANNED)):
        example = table[i]
        if isinstance(example, dict):
            places.setdefault(source.hold_out_key(table, i, example), {}).setdefault(_hash(example), i)
    each = max(1, min(len(places) // SHARE, MOST))
    if len(places) <= each * len(missing):
        raise ValueError(
            f"{', '.join(name for name, *_ in files)}: only {len(places)} different example(s) there, too few to hold "
            f"out some for {' and '.join(missing)}; give files for these splits"
        )
    ranked = sorted(places)[: each * len(missing)]
    members = {
        split: tuple(sorted(i for key in ranked[n * each : (n + 1) * each] for i in places[key].values()))
        for n, split in enumerate(missing)
    }
    return _Choice(ranked[-1], members)


class Remaining:
    """A table without what is held out of it."""

    def __init__(self, table: Table, source: FileSource, bound: int) -> None:
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
