"""Tokenized examples: the ids of texts, pairs and conversations in ragged arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..source import Example
from .ragged import Ids, Index, Ragged

CONVERSATION = "conversation"
PIECES = ("", "first", "middle", "last", CONVERSATION)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Tokenized examples.

    places:   the position of each example among the requested entries, ascending.
    sides:    (source, target) of pairs, (text,) of running text, without special tokens; (ids, trained) of conversations,
              where `trained` is 1 for each token of the assistant.
    pieces:   which part of its document each text is, as an index into `PIECES`; "" is all of it.
    examples: the texts, if requested.
    """

    places: Index
    sides: tuple[Ragged, ...]
    pieces: Ids
    examples: tuple[Example, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    @property
    def running(self) -> bool:
        """Whether these are texts rather than pairs."""
        return len(self.sides) == 1

    @property
    def conversations(self) -> bool:
        return bool(len(self)) and self.pieces[0] == PIECES.index(CONVERSATION)

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Whether a text begins its document."""
        return self.pieces <= 1

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether a text ends its document."""
        return self.pieces % 3 == 0

    def take(self, which: Index | NDArray[np.bool_]) -> Encoded:
        numbers = np.arange(len(self))[which].tolist()
        texts = tuple(self.examples[i] for i in numbers) if self.examples else ()
        return Encoded(self.places[which], tuple(side.take(which) for side in self.sides), self.pieces[which], texts)

    def merged(self, other: Encoded) -> Encoded:
        """Merge with other examples of the same entries, ordered by `places`."""
        places = np.concatenate([self.places, other.places])
        sides = tuple(Ragged.join(both) for both in zip(self.sides, other.sides, strict=True))
        joined = Encoded(places, sides, np.concatenate([self.pieces, other.pieces]), self.examples + other.examples)
        return joined.take(np.argsort(places, kind="stable"))
