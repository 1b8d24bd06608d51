"""What a data source is: a spec that opens its examples as a table, one table for each split and epoch.

Everything above reads tables by index, so that any batch of any epoch can be made from the seed alone: by whichever
worker process, and after a resume as before it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from ..core.shuffle import Shuffle, mix
from ..core.spec import Spec


def new_name_of_refuse(value: Any) -> Any:
    """`raise` was called `refuse` in earlier versions."""
    return "raise" if value == "refuse" else value


OnError = Annotated[Literal["raise", "skip"], BeforeValidator(new_name_of_refuse)]
"""What happens to a bad example: "raise" an error that says where it is, or "skip" and count it."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

Example = dict[str, Any]
"""What a source gives and a task reads. Of texts `{"source": ..., "target": ...}` or `{"text": ...}`; `"piece"` says
"first", "middle" or "last" where the text is part of a document that was cut. A conversation has its `"messages"` as
JSON, what was said as its `"text"`. Whatever is of a file says by `"where"` its file and line."""
TEXTS = ("source", "target", "text")


class Skipped(str):
    """What a table holds instead of a bad example: the reason, and `where` the example stands, if that is known."""

    where: str

    def __new__(cls, reason: str, where: str = "") -> Skipped:
        made = super().__new__(cls, reason)
        made.where = where
        return made


class Table(Protocol):
    """The examples of one epoch, by index. None stands where an entry belongs to another split.

    A list of examples is a table. A table may have a `weight`: about how many ordinary lines one entry is worth. One
    that is `sequential` is read in its order, is as long as `sys.maxsize` until its end was read, and gives None there.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Example | Skipped | None: ...


@dataclass
class Counts:
    """What became of the examples that were read; `str()` of it is the sentence for the end of a run."""

    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)  # where the first that was skipped for a reason stands
    cut: int = 0
    tokens: int = 0
    slots: int = 0
    notes: tuple[str, ...] = ()

    def skip(self, entry: Skipped) -> None:
        self.skipped[str(entry)] += 1
        if entry.where:
            self.first.setdefault(str(entry), entry.where)

    def add(self, other: Counts) -> None:
        self.read += other.read
        self.skipped += other.skipped
        self.first = other.first | self.first
        self.cut += other.cut
        self.tokens += other.tokens
        self.slots += other.slots

    @property
    def fill(self) -> float:
        """Real tokens ÷ slots: 1.0 means that nothing was spent on padding."""
        return self.tokens / self.slots if self.slots else 0.0

    def __str__(self) -> str:
        said = f"{self.read:,} examples read"
        if self.skipped:
            reasons = ", ".join(self._reason(reason, n) for reason, n in self.skipped.most_common())
            said += f"; {self.skipped.total():,} skipped ({reasons}), {_share(self.skipped.total(), self.read)} of all"
        if self.cut:
            said += f"; {self.cut:,} over-long cut, {_share(self.cut, self.read)} of all"
        if self.slots:
            said += f"; {self.fill:.1%} of the batches' slots held tokens"
        return "; ".join([said, *self.notes])

    def _reason(self, reason: str, n: int) -> str:
        first = self.first.get(reason)
        return f"{n:,} {reason}" + (f", {'' if n == 1 else 'first '}{first!r}" if first else "")


def _share(part: int, whole: int) -> str:
    """In per cent; what is not quite all or nothing never reads 0 or 100."""
    share = part / max(whole, 1)
    return f"{share:.0%}" if 0.01 <= share <= 0.99 or share in (0, 1) else f"{share:.2%}"


class Source(Spec, role="source"):
    """Where examples come from. A new source is a subclass with a `kind` and a `table`.

    class Greetings(Source, kind="greetings"):
        def table(self, split, *, seed=0, epoch=0):
            return [{"source": "hello", "target": "bonjour"}]

    places: the settings that name files or folders. In a recipe's file they are relative to it.
    """

    places: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path")

    @property
    def fixed(self) -> bool:
        """Whether a split's table is the same for every seed and epoch, so that what was read once may be remembered."""
        return False

    @abstractmethod
    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        """The examples of one split. Deterministic for (seed, epoch); a source of files may ignore both.

        Raises ValueError where the data are missing, empty or unreadable.
        """

    @property
    def special(self) -> tuple[str, ...]:
        """Words in the texts that a tokenizer should keep as one token each, such as `<de>`."""
        return ()

    @property
    def tags(self) -> tuple[str, ...]:
        """Those of `special` of which one begins every source: the language that it is to be translated into."""
        return ()

    def notes(self) -> tuple[str, ...]:
        """What the user should know about how these data are used, as sentences."""
        return ()

    def examples(
        self, split: Split = "train", *, seed: int = 0, epoch: int = 0, shuffle: bool | None = None
    ) -> Iterator[Example]:
        """The good examples of one epoch, one by one; shuffled unless told otherwise where the split is "train"."""
        table = self.table(split, seed=seed, epoch=epoch)
        mixed = split == "train" if shuffle is None else shuffle
        mixed = mixed and not getattr(table, "sequential", False)
        start = 0
        while start < len(table):
            places = order(table, start, start + 1024, mix(seed, epoch) if mixed else None)
            yield from read(table, places.tolist(), Counts())
            start += 1024

    def texts(self, split: Split = "train") -> Iterator[str]:
        """Every text of a split, both sides of a pair, what is said in a conversation: what a tokenizer is trained on."""
        for example in self.examples(split, shuffle=False):
            yield from (text for name, text in example.items() if name in TEXTS)


def order(table: Table, start: int, stop: int, seed: int | None) -> NDArray[np.int64]:
    """The indices at places start … stop − 1 of an epoch: shuffled by the seed, or as they stand when it is None."""
    places = np.arange(start, min(stop, len(table)), dtype=np.int64)
    return places if seed is None else Shuffle(len(table), seed)(places)


def read(table: Table, indices: Iterable[int], counts: Counts) -> list[Example]:
    """The good examples at these indices, in this order; the others are counted."""
    found: list[Example] = []
    for i in indices:
        entry = table[i]
        if entry is None:
            continue
        counts.read += 1
        if isinstance(entry, Skipped):
            counts.skip(entry)
        else:
            found.append(entry)
    return found
