"""Train/validation/test split: holds out training examples by hash if no validation or test data are given."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .shuffle import text_hash
from .source import SPLITS, TEXTS, Example, Skipped, Source, Split, Table, note_on_other_splits
from .tables import ComputedTable, subset_table, weight_of
from .tokenizers.chat.messages import files_in, text_of

SHARE = 50  # one in 50 examples is held out for each split without its own data
MOST = 1000  # but no more than about this
FEW = 300  # small data sets hold out one in `TENTH`, up to this: a few dozen examples would measure noise
TENTH = 10
_SCANNED = 200_000  # maximum number of examples among which to choose
_ANSWERS = ("label", "score", "choices", "answer", "tags")  # in which examples with the same texts may differ
_LARGE = 10  # groups with more than a tenth of all examples are held out last


class HoldOutSource(Source):
    """A source with a training table and, if the user has them, tables for validation and test.

    A split without data is held out of the training table: about 2 % of it, at most about 1,000 examples; of fewer than
    15,000 examples 300, or a tenth, but at least one (of running text in pieces, always 2 %). They are chosen by the hash
    of their source text: a source is held out with all its translations, a text with all its labels. So no held-out text
    occurs in training with another answer, the choice is the same in every run, and it doesn't depend on a seed.
    """

    @property
    def fixed(self) -> bool:
        return True

    @abstractmethod
    def gives(self, split: Split) -> bool:
        """Whether the user provided data for this split."""

    @abstractmethod
    def open(self, split: Split) -> Table:
        """All examples that the user provided for a split."""

    @abstractmethod
    def stamp(self) -> tuple[Hashable, ...]:
        """Identifies the state of the training data and changes with it. The first member is its name, for messages."""

    def readable(self, split: Split) -> Table:
        """`open`, with the policy for bad examples applied."""
        return self.open(split)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """Examples with equal keys are held out together."""
        return text_hash(_about(example))

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if split != "train" and self.gives(split):
            return self.readable(split)
        table = self.readable("train")
        if not self._missing:
            return table
        choice = _choose(self, self.stamp())
        if split == "train":
            return without_held_out(table, self, choice)
        return subset_table(table, choice.members[split])

    @property
    def _missing(self) -> tuple[Split, ...]:
        return tuple(split for split in SPLITS[1:] if not self.gives(split))

    @property
    def compared(self) -> bool:
        """Whether to check if validation and test examples also occur in the training data."""
        return False

    def notes(self) -> tuple[str, ...]:
        return (*self._held_out(), *self._overlaps())

    def _held_out(self) -> tuple[str, ...]:
        """Return a note on what is held out of the training data."""
        if not self._missing:
            return ()
        choice = _choose(self, self.stamp())
        held = " and ".join(f"{len(choice.members[split]):,} for {split}" for split in self._missing)
        shared = "; too few differ in their first text to keep these apart" if choice.alone else ""
        least = "at least " if len(self.readable("train")) > _SCANNED else ""
        rows = "row equal to one of them is" if choice.repeats == 1 else "rows equal to one of them are"
        left = f"; {least}{choice.repeats:,} {rows} in no split" if choice.repeats else ""
        return (f"held out of the training data by hash: {held}{shared}{left}",)

    def _overlaps(self) -> Iterator[str]:
        """Yield notes on validation and test examples that are in the training data, too."""
        for split in SPLITS[1:]:
            if self.compared and self.gives(split):
                yield from self.shared_with_training(split, self.stamp())

    def shared_with_training(self, split: Split, stamps: Hashable) -> Iterator[str]:
        """A note on examples of a split that share their text with training examples. The stamps renew it."""
        shared, size, seen = _shared(self, split, stamps)
        among = f" (among the first {seen:,})" if seen == _SCANNED else ""
        if shared:
            yield f"{shared:,} of {size:,} {split} examples share their first text with training examples{among}"


class FileSource(HoldOutSource):
    """A source of files."""

    @abstractmethod
    def paths(self, split: Split) -> tuple[Path, ...]:
        """The files of a split; empty if the user provided none."""

    def gives(self, split: Split) -> bool:
        return bool(self.paths(split))

    def stamp(self) -> tuple[Hashable, ...]:
        return self._stamp("train")

    def _stamp(self, split: Split) -> tuple[Hashable, ...]:
        paths = self.paths(split)
        return ", ".join(map(str, paths)), *((stat.st_size, stat.st_mtime_ns) for stat in (p.stat() for p in paths))

    def notes(self) -> tuple[str, ...]:
        return (*super().notes(), *self._other_splits())

    def _other_splits(self) -> Iterator[str]:
        """A note on training files that have the names of other splits."""
        paths = [path.absolute() for path in self.paths("train")]
        if len(paths) > 1:
            above = os.path.commonpath(path.parent for path in paths)
            yield from note_on_other_splits([path.relative_to(above) for path in paths])

    def _overlaps(self) -> Iterator[str]:
        """Notes on examples and files that are in the training data and in another split."""
        trained = {path.resolve() for path in self.paths("train")}
        for split in SPLITS[1:]:
            paths = self.paths(split)
            both = sum(path.resolve() in trained for path in paths)
            if both:
                yield f"{both:,} of {len(paths):,} files for {split} are training files, too"
            elif self.compared and self.gives(split):
                yield from self.shared_with_training(split, (self.stamp(), self._stamp(split)))


def _about(example: Example) -> str:
    """The text whose hash decides whether an example is held out: its source or text, the first user message of a
    conversation, or, if it has no text, its place."""
    if "messages" in example:
        messages = json.loads(example["messages"])
        questions = [message for message in messages if message["role"] == "user"]  # not the assistant's greeting
        first = questions or [message for message in messages if message["role"] not in ("system", "developer")]
        said = text_of(first[0]) if first else str(example["text"])
        return said + "".join(f"\n{file}" for files in files_in(first[:1]).values() for file in files)
    return str(next((example[name] for name in ("source", "text") if name in example), example.get("where", "")))


def _hash(example: Example) -> int:
    """A hash of an example's texts and answers, or of its place if it has no text."""
    if any(name in example for name in TEXTS):
        more = [
            example[name] for name in ("pair", "files") if name in example
        ]  # a second text, a conversation's pictures
        answers = [f"{name} {example[name]}" for name in _ANSWERS if name in example]
        return text_hash(*(example.get(name, "") for name in TEXTS), *more, *answers)
    return text_hash(str(example["where"]))


@lru_cache(maxsize=16)
def _shared(source: HoldOutSource, split: Split, stamps: Hashable) -> tuple[int, int, int]:
    """How many examples of a split share a key with training examples, of how many, and how many of the latter were read."""
    keys = Counter(_keys(source, source.readable(split)))
    trained = Counter(_keys(source, source.readable("train")))
    return sum(keys[key] for key in keys.keys() & trained.keys()), keys.total(), trained.total()


def _keys(source: HoldOutSource, table: Table) -> Iterator[int]:
    for i in range(min(len(table), _SCANNED)):
        example = table[i]
        if isinstance(example, dict):
            yield source.hold_out_key(table, i, example)


class _Choice(NamedTuple):
    """Which examples are held out.

    held:    the keys of held-out examples; no example with one of these keys is trained on.
    members: the table indices of each split.
    alone:   whether examples are held out one by one, because there are too few groups.
    repeats: how many examples equal a member, so they are in no split.
    """

    held: frozenset[int]
    members: dict[Split, tuple[int, ...]]
    alone: bool
    repeats: int

    def key(self, source: HoldOutSource, table: Table, i: int, example: Example) -> int:
        return _hash(example) if self.alone else source.hold_out_key(table, i, example)


@lru_cache(maxsize=16)
def _choose(source: HoldOutSource, stamp: tuple[Hashable, ...]) -> _Choice:
    """Hold out the groups of examples with the smallest hashes. The stamp renews the choice when the data change."""
    table, missing = source.readable("train"), source._missing
    groups: dict[int, dict[int, int]] = {}  # key → the first index of each different example with it
    bad, times = Counter[str](), Counter[int]()
    for i in range(min(len(table), _SCANNED)):
        example = table[i]
        if isinstance(example, dict):
            one = _hash(example)
            groups.setdefault(source.hold_out_key(table, i, example), {}).setdefault(one, i)
            times[one] += 1
        elif example is not None:
            bad[str(example)] += 1
    apart = {key: {key: i} for group in groups.values() for key, i in group.items()}
    each = _wanted(sum(map(len, groups.values())), weight_of(table))
    grouped = _drawn(groups, missing, each)
    chosen = grouped or _drawn(apart, missing, each)
    if chosen is None:
        beside = "".join(f", and {n:,} {reason}" for reason, n in bad.most_common(1))
        there = f"only {len(apart)} different example(s)" if apart else "no example that can be used"
        raise ValueError(
            f"{stamp[0]}: {there} there{beside}; that is too few to hold out some for {' and '.join(missing)}, so give "
            "data for these"
        )
    used = apart if grouped is None else groups
    repeats = sum(times[one] - 1 for key in chosen[0] for one in used[key])
    return _Choice(*chosen, alone=grouped is None, repeats=repeats)


def _wanted(total: int, weight: int) -> int:
    """How many of `total` examples are held out for a split. Pieces of running text are long, so fewer are needed."""
    few = min(FEW, total // TENTH) if weight == 1 else 0
    return max(1, min(max(total // SHARE, few), MOST))


def _drawn(
    groups: dict[int, dict[int, int]], missing: tuple[Split, ...], each: int
) -> tuple[frozenset[int], dict[Split, tuple[int, ...]]] | None:
    """The keys and indices of held-out examples; None if there are too few groups. Large groups are held out last."""
    total = sum(map(len, groups.values()))
    ranked = sorted(groups, key=lambda key: (len(groups[key]) > max(1, total // _LARGE), key))
    held: list[int] = []
    members: dict[Split, tuple[int, ...]] = {}
    for split in missing:
        places: list[int] = []
        while len(places) < each and len(held) < len(ranked):
            held.append(ranked[len(held)])
            places += groups[held[-1]].values()
        members[split] = tuple(sorted(places))
    return (frozenset(held), members) if all(members.values()) and len(held) < len(groups) else None


def without_held_out(table: Table, source: HoldOutSource, choice: _Choice) -> Table:
    """A table with None in place of its held-out examples."""

    def trained_on(i: int) -> Example | Skipped | None:
        entry = table[i]
        held = isinstance(entry, dict) and choice.key(source, table, i, entry) in choice.held
        return None if held else entry

    return ComputedTable(len(table), trained_on, weight_of(table))
