"""Static word vectors: one vector per word, with cosine similarity, nearest neighbors and analogies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ...core.spec import brief, counted, nearest

_SPELLED = 20_000  # the first words, among which similar spellings of an unknown word are searched

Found = list[tuple[str, float]]
"""Words with their cosine similarity, most similar first."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """words: V different ones, usually the most frequent first; array: (V, E), fp32, row i the vector of word i.

    notes: sentences of the reader about the file.

    Raises ValueError if words and array don't fit together, a word occurs twice, or a number is not finite.
    """

    words: tuple[str, ...]
    array: Float[NDArray[np.float32], "V E"]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.words, (list, tuple)) or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words are a tuple of texts, not {brief(self.words)}")
        if not isinstance(self.array, np.ndarray):
            raise ValueError(f"the array of vectors is a NumPy array, one row for each word, not {brief(self.array)}")
        if self.array.ndim != 2 or len(self.words) != len(self.array) or not self.array.size:
            raise ValueError(
                f"the array of {counted(len(self.words), 'word')} needs a row for each and one or more columns; its shape "
                f"is {tuple(self.array.shape)}"
            )
        if len(self.index) < len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self.index[word] != i)
            raise ValueError(f"the word {brief(twice)} occurs twice; every word has one vector")
        bad = np.flatnonzero(~np.isfinite(self.array).all(1))
        if len(bad):
            raise ValueError(f"the vector of {brief(self.words[bad[0]])} holds a number that is not finite")

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of every word."""
        return {word: i for i, word in enumerate(self.words)}

    @property
    def width(self) -> int:
        return int(self.array.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> Float[NDArray[np.float32], " E"]:
        """The vector of a word. Raises ValueError with words that are spelled like it."""
        row = self.index.get(word)
        if row is None:
            raise ValueError(f"there is no vector for {brief(word)}; {nearest(word, self.words[:_SPELLED])}")
        return self.array[row]

    @cached_property
    def unit(self) -> Float[NDArray[np.float32], "V E"]:
        """Every vector divided by its length; a zero vector stays zero."""
        lengths = np.linalg.norm(self.array, axis=1, keepdims=True)
        return self.array / np.maximum(lengths, np.finfo(np.float32).tiny)

    def similarity(self, a: str, b: str) -> float:
        """cos(a, b) = a · b / |a| |b|, from −1 to 1."""
        return float(_direction(self[a]) @ _direction(self[b]))

    def nearest(self, word: str, count: int = 10) -> Found:
        """The `count` words with the highest cosine similarity to a word, without itself."""
        return self._closest(self[word], count, (word,))

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> Found:
        """a is to b as c is to …: the words nearest to b/|b| − a/|a| + c/|c|, without the three (Mikolov et al. 2013,
        "Linguistic regularities in continuous space word representations")."""
        target = _direction(self[b]) - _direction(self[a]) + _direction(self[c])
        return self._closest(target, count, (a, b, c))

    def _closest(self, vector: Float[NDArray[np.float32], " E"], count: int, without: Sequence[str]) -> Found:
        if count < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        cosines = self.unit @ _direction(vector)
        cosines[[self.index[word] for word in without]] = -np.inf
        count = min(count, len(self.words) - len(set(without)))
        best = np.argpartition(-cosines, count - 1)[:count] if count > 0 else np.zeros(0, np.int64)
        best = best[np.argsort(-cosines[best], kind="stable")]
        return [(self.words[i], float(cosines[i])) for i in best]


def _direction(vector: Float[NDArray[np.float32], " E"]) -> Float[NDArray[np.float32], " E"]:
    return vector / max(float(np.linalg.norm(vector)), float(np.finfo(np.float32).tiny))
