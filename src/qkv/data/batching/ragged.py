"""Ragged arrays: sequences of different lengths in one flat array, sorted, sliced and padded without Python loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """n sequences; sequence i is `flat[starts[i] : starts[i] + lengths[i]]`.

    Sequences may share parts of `flat`, so taking some of them, or parts of them, copies no token.
    """

    flat: Ids
    starts: Index
    lengths: Index

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Self:
        return cls.runs(np.fromiter(chain.from_iterable(sequences), np.int32), [len(s) for s in sequences])

    @classmethod
    def runs(cls, flat: Ids, lengths: Sequence[int] | Index) -> Self:
        """Sequences that follow one another in `flat` without gaps."""
        sizes = np.asarray(lengths, np.int64)
        return cls(flat, np.cumsum(sizes) - sizes, sizes)

    @classmethod
    def join(cls, parts: Iterable[Ragged]) -> Self:
        """The sequences of several ragged arrays, concatenated."""
        compact = [part.compact() for part in parts]
        flat = np.concatenate([np.empty(0, np.int32), *(part.flat for part in compact)])
        return cls.runs(flat, np.concatenate([np.empty(0, np.int64), *(part.lengths for part in compact)]))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Ids:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[i] for i in range(len(self)))

    def take(self, which: Index | NDArray[np.bool_]) -> Ragged:
        """Return the sequences at the indices `which`, in the order given."""
        return Ragged(self.flat, self.starts[which], self.lengths[which])

    def part(self, skip: int = 0, leave: int = 0) -> Ragged:
        """Every sequence without its first `skip` and its last `leave` tokens."""
        return Ragged(self.flat, self.starts + skip, np.maximum(self.lengths - skip - leave, 0))

    def upto(self, most: int) -> Ragged:
        """The first `most` tokens of every sequence."""
        return Ragged(self.flat, self.starts, np.minimum(self.lengths, most))

    def places(self) -> Index:
        """The index in `flat` of each token, sequence after sequence."""
        before = np.cumsum(self.lengths) - self.lengths
        return np.repeat(self.starts - before, self.lengths) + np.arange(int(self.lengths.sum()))

    def compact(self) -> Ragged:
        """The same sequences without gaps between them."""
        return Ragged.runs(self.flat[self.places()], self.lengths)

    def framed(self, before: Ids, after: Ids) -> Ragged:
        """Every sequence with one token before and one after it; −1 adds none."""
        begins, ends = before >= 0, after >= 0
        lengths = self.lengths + begins + ends
        framed = Ragged.runs(np.empty(int(lengths.sum()), np.int32), lengths)
        inner = Ragged(framed.flat, framed.starts + begins, self.lengths)
        framed.flat[inner.places()] = self.flat[self.places()]
        framed.flat[framed.starts[begins]] = before[begins]
        framed.flat[(framed.starts + lengths - 1)[ends]] = after[ends]
        return framed

    def padded(self, fill: int) -> NDArray[np.int64]:
        """(n, longest): the sequences, padded on the right with `fill`."""
        width = int(self.lengths.max(initial=0))
        column = np.arange(width)
        real = column < self.lengths[:, None]
        out = np.full((len(self), width), fill, np.int64)
        out[real] = self.flat[(self.starts[:, None] + column)[real]]
        return out
