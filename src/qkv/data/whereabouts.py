"""Made stories of who is where, a question about them, and places to choose from, for recipes that run anywhere.

    tom is in the attic . ann is in the barn . eve is in the hall . where is ann ?       attic, barn, hall, tower

Several candidates stand in the story, so that only who stands beside each tells which is right.
"""

from __future__ import annotations

from random import Random

from .invented import Invented
from .sources import Example

_PEOPLE = ("tom", "ann", "eve", "max", "leo", "ida", "sam", "zoe")
_PLACES = ("attic", "barn", "hall", "tower", "cellar", "kitchen", "garden", "stable", "library", "chapel")
_IS = ("is in the", "waits in the", "sleeps in the", "hides in the")
_MOST, _CANDIDATES = 3, 4


class Whereabouts(Invented, kind="whereabouts"):
    """The places of one, two or three people, and four candidates: these places and others."""

    def made(self, random: Random) -> Example:
        people, places = random.sample(_PEOPLE, random.randint(1, _MOST)), random.sample(_PLACES, _CANDIDATES)
        told = " . ".join(f"{who} {random.choice(_IS)} {place}" for who, place in zip(people, places, strict=False))
        asked = random.randrange(len(people))
        candidates = random.sample(places, len(places))
        return {
            "text": f"{told} . where is {people[asked]} ?",
            "choices": candidates,
            "answer": candidates.index(places[asked]),
        }
