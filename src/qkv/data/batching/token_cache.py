"""In-memory cache of the token ids of training examples, so files are tokenized once and not in every epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoded import Encoded
from .ragged import Index, Ragged


class TokenCache:
    """The token ids of a table's entries by index, up to `budget` bytes; further entries are tokenized again.

    An entry takes 4 bytes per token, and about 30 more.
    """

    def __init__(self, entries: int, budget: int) -> None:
        self._budget = budget
        self._states = np.full(entries if entries * 8 <= budget else 0, _UNKNOWN, np.int64)
        self._reasons: list[str] = []  # state −2 − n is the n-th reason
        self._ids = _Growing(np.int32, 1)
        self._starts = _Growing(np.int64, 1)
        self._heads: _Growing | None = None  # piece, and length of each side
        self.full = len(self._states) < entries

    @property
    def nbytes(self) -> int:
        heads = self._heads.nbytes if self._heads else 0
        return self._states.nbytes + self._ids.nbytes + self._starts.nbytes + heads

    def recall(self, indices: Index) -> tuple[Encoded | None, list[tuple[int, str]], Index]:
        """The cached examples, (position, reason) of cached bad entries, and the positions of entries not in the cache."""
        states = self._states[indices] if len(self._states) else np.full(len(indices), _UNKNOWN)
        reasons = [(int(i), self._reasons[-2 - int(states[i])]) for i in np.flatnonzero(states < _UNKNOWN)]
        known = np.flatnonzero(states >= 0)
        if not len(known) or self._heads is None:
            return None, reasons, np.flatnonzero(states == _UNKNOWN)
        heads, starts = self._heads.values[states[known]], self._starts.values[states[known], 0]
        lengths = heads[:, 1:].astype(np.int64)
        before = np.cumsum(lengths, 1) - lengths
        flat = self._ids.values[:, 0]
        sides = tuple(Ragged(flat, starts + before[:, k], lengths[:, k]) for k in range(lengths.shape[1]))
        return Encoded(known, sides, heads[:, 0]), reasons, np.flatnonzero(states == _UNKNOWN)

    def learn(self, indices: Index, encoded: Encoded | None, reasons: list[tuple[int, str]]) -> None:
        """Store the results for these entries, if all of them fit."""
        if self.full:
            return
        if encoded is not None:
            tokens = sum(int(side.lengths.sum()) for side in encoded.sides)
            if self.nbytes + 4 * tokens + 24 * len(encoded) > self._budget:
                self.full = True
                return
            numbers = self._starts.count + np.arange(len(encoded))
            self._keep(encoded)
            self._states[indices[encoded.places]] = numbers
        for place, reason in reasons:
            if reason not in self._reasons:
                self._reasons.append(reason)
            self._states[indices[place]] = -2 - self._reasons.index(reason)

    def _keep(self, encoded: Encoded) -> None:
        lengths = np.stack([side.lengths for side in encoded.sides], 1)
        ends = np.cumsum(lengths.sum(1)) + self._ids.count
        self._starts.add((ends - lengths.sum(1))[:, None])
        self._heads = self._heads or _Growing(np.int32, 1 + len(encoded.sides))
        self._heads.add(np.concatenate([encoded.pieces[:, None], lengths], 1))
        laced = Ragged(  # the sides of an example follow one another
            np.concatenate([side.flat for side in encoded.sides]),
            np.stack([s.starts + o for s, o in zip(encoded.sides, _offsets(encoded.sides), strict=True)], 1).ravel(),
            lengths.ravel(),
        )
        self._ids.add(laced.compact().flat[:, None])


_UNKNOWN = -1


def _offsets(sides: tuple[Ragged, ...]) -> list[int]:
    """Where each side's tokens begin in the concatenation of all sides."""
    return [sum(len(side.flat) for side in sides[:k]) for k in range(len(sides))]


class _Growing:
    """A growable array of rows, which doubles its capacity when full."""

    def __init__(self, dtype: type[np.generic], width: int) -> None:
        self.count = 0
        self._array: NDArray[Any] = np.empty((0, width), dtype)

    @property
    def values(self) -> NDArray[Any]:
        return self._array[: self.count]

    @property
    def nbytes(self) -> int:
        """The size of its rows."""
        return self.values.nbytes

    def add(self, rows: NDArray[Any]) -> None:
        needed = self.count + len(rows)
        if needed > len(self._array):
            larger = np.empty((max(needed, 2 * len(self._array)), self._array.shape[1]), self._array.dtype)
            larger[: self.count] = self.values
            self._array = larger
        self._array[self.count : needed] = rows
        self.count = needed
