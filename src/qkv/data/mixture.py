"""Mixture of data sources with a task prefix each: multi-task training of text-to-text models (Raffel et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ..core.spec import Spec
from .shuffle import Shuffle, mix
from .source import Example, Skipped, Source, Split, Table
from .tables import ComputedTable, ConcatTable, weight_of


class MixturePart(Spec):
    """A source, and the prefix of each of its texts, such as "summarize: "."""

    source: Source
    prefix: str = ""


class MixtureSource(Source, kind="mixture"):
    """Examples of all parts, where a part of n examples is sampled in proportion to min(n, limit)^(1/temperature).

    With temperature 1 every example is seen equally often; the higher it is, the more equal the parts are (Arivazhagan
    et al. 2019; Raffel et al. 2020, §3.5.2). An epoch is as long as all parts together. A part that runs out of examples is
    reshuffled and starts again; a part that is not used up continues in the next epoch. Validation and test come from
    the parts, concatenated.
    """

    parts: tuple[MixturePart, ...] = Field(min_length=1)
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    limit: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _not_nested(self) -> Self:
        if any(isinstance(part.source, MixtureSource) for part in self.parts):
            raise ValueError("a part of a mixture is no mixture itself; list its parts here")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.source.libraries))

    @property
    def special(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(marker for part in self.parts for marker in part.source.special))

    @property
    def tags(self) -> tuple[str, ...]:
        every = [() if part.prefix else part.source.tags for part in self.parts]
        return tuple(dict.fromkeys(tag for tags in every for tag in tags)) if all(every) else ()

    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for part in self.parts for note in part.source.notes()))

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        tables = [_prefixed(p.source.table(split, seed=seed, epoch=epoch), p.prefix) for p in self.parts]
        if split != "train":
            return ConcatTable(tables)
        sizes = [len(table) for table in tables]
        counts = shares(sizes, sum(sizes), self.temperature, self.limit)
        return ConcatTable(
            [_repeated(t, n, mix(seed, i), epoch * n) for i, (t, n) in enumerate(zip(tables, counts, strict=True))]
        )


def shares(sizes: Sequence[int], total: int, temperature: float = 1.0, limit: int | None = None) -> list[int]:
    """How many examples are drawn from each part: at least one, and `total` in all."""
    weights = [min(size, limit or size) ** (1 / temperature) for size in sizes]
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [max(1, int(share)) for share in exact]
    for i in sorted(range(len(sizes)), key=lambda i: counts[i] - exact[i])[: max(0, total - sum(counts))]:
        counts[i] += 1
    return counts


def _prefixed(table: Table, prefix: str) -> Table:
    """A table with a prefix before each text."""
    if getattr(table, "sequential", False):
        raise ValueError("a part of a mixture must allow reading in any order, and a stream from the Hub doesn't")

    def entry(i: int) -> Example | Skipped | None:
        entry = table[i]
        if not isinstance(entry, dict) or not prefix:
            return entry
        name = "source" if "source" in entry else "text"
        return {**entry, name: prefix + entry[name]}

    return ComputedTable(len(table), entry, weight_of(table))


def _repeated(table: Table, size: int, seed: int, begin: int) -> Table:
    """Entries begin … begin + size − 1 of endlessly repeated, reshuffled passes through a table."""

    def entry(i: int) -> Example | Skipped | None:
        number, place = divmod(begin + i, len(table))
        return table[int(_order(len(table), mix(seed, number))[place])]

    return ComputedTable(size, entry, weight_of(table))


@lru_cache(maxsize=64)
def _order(size: int, seed: int) -> NDArray[np.int64]:
    return Shuffle(size, seed)(np.arange(size))
