"""Training of static word vectors: the corpus as ids, and the base class of methods (skip-gram, GloVe)."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from pydantic import Field

from ...core.spec import Spec
from ..files.lines import lines_of_files
from .word_vectors import Vectors

Progress = Callable[[float], None]
"""Called regularly with the completed fraction of the work."""


@dataclass(frozen=True, eq=False)
class VectorCorpus:
    """Running text as numbers.

    words:    the vocabulary, the most frequent word first; counts: (V,), the number of occurrences of each.
    ids:      (N,), the text without its rare words; sentences: (N,), the line number of each word.
    dropped:  the number of running words that were too rare.
    """

    words: tuple[str, ...]
    counts: Int[NDArray[np.int64], " V"]
    ids: Int[NDArray[np.int32], " N"]
    sentences: Int[NDArray[np.int32], " N"]
    dropped: int = 0

    @classmethod
    def of(cls, lines: Iterable[str], *, min_count: int = 5, lowercase: bool = False) -> Self:
        """A corpus from lines of words between spaces. Windows don't cross lines. Words that occur fewer than `min_count`
        times are removed before windows are formed. Raises ValueError if fewer than two words are left.
        """
        seen: defaultdict[str, int] = defaultdict()
        seen.default_factory = seen.__len__
        ids, lengths = array("i"), array("i")
        for line in lines:
            words = (line.lower() if lowercase else line).split()
            ids.extend(map(seen.__getitem__, words))
            lengths.append(len(words))
        text = np.frombuffer(ids, np.int32) if ids else np.zeros(0, np.int32)
        counts = np.bincount(text, minlength=len(seen))
        spelled = np.array(list(seen), object)
        order = sorted(np.flatnonzero(counts >= min_count).tolist(), key=lambda i: (-counts[i], spelled[i]))
        if len(order) < 2:
            raise ValueError(
                f"{len(order)} of the text's {len(seen):,} words occur {min_count} times or more, and vectors need "
                "two; lower min_count, or give more text"
            )
        place = np.full(len(seen), -1, np.int32)
        place[order] = np.arange(len(order))
        sentences = np.repeat(np.arange(len(lengths), dtype=np.int32), np.frombuffer(lengths, np.int32))
        renumbered = place[text]
        kept = renumbered >= 0
        dropped = int(len(text) - np.count_nonzero(kept))
        return cls(tuple(spelled[order]), counts[order], renumbered[kept], sentences[kept], dropped)

    @classmethod
    def read(cls, files: Iterable[str | Path], *, min_count: int = 5, lowercase: bool = False) -> Self:
        """A corpus from text files, plain or .gz. Raises ValueError for one that is missing, empty or not UTF-8."""
        return cls.of(lines_of_files(files), min_count=min_count, lowercase=lowercase)

    def __len__(self) -> int:
        return len(self.ids)


class VectorMethod(Spec, role="vector method"):
    """A method of training word vectors; a new one is a subclass with a `kind` and a `train`.

    width:  size of a vector.
    window: maximum number of context words on each side.
    """

    width: int = Field(default=100, ge=1)
    window: int = Field(default=5, ge=1, le=1000)
    epochs: int = Field(default=5, ge=1)
    lr: float = Field(default=0.025, gt=0, allow_inf_nan=False)

    def train(self, corpus: VectorCorpus, *, seed: int = 0, progress: Progress | None = None) -> Vectors:
        """The vectors of the corpus' words: the same for the same seed, on one machine with as many threads."""
        raise NotImplementedError


def method(kind: str, **settings: Any) -> VectorMethod:
    """A method by its kind, with the settings that are not None. Raises ValueError for a setting of another method."""
    given = {name: value for name, value in settings.items() if value is not None}
    known = type(VectorMethod.from_dict({"kind": kind})).model_fields
    if others := [name for name in given if name not in known]:
        raise ValueError(f"{kind} has no {others[0]}; its settings are {', '.join(known)}")
    return VectorMethod.from_dict({"kind": kind, **given})
