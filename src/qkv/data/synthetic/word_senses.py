"""Generated sentences with ambiguous words, for word-sense probes: the `bank` of a river and the one of money.

    we rowed down the river and the old bank was muddy
    he counted the money so the bank raised its rates

The words that decide the meaning stand to the left, so that a causal model can know it at the word, and what follows
depends on it, so that language modeling alone rewards knowing it. No model sees the sense.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field, field_validator

from ...core.spec import nearest
from ..source import Example, Source, Split, Table
from .base import hashed_split


class Sense(NamedTuple):
    """One meaning of a word: what comes before it and after it, and the word that it makes a compound with."""

    name: str
    before: tuple[str, ...]
    compound: str
    after: tuple[str, ...]


WORDS: dict[str, tuple[Sense, ...]] = {
    "bank": (
        Sense(
            "river",
            ("we rowed down the river", "she fished in the stream", "he swam through cold water", "they saw the ferry"),
            "river",
            ("was muddy", "was steep and green", "was full of reeds", "had been washed away"),
        ),
        Sense(
            "money",
            ("he counted the money", "she asked for a loan", "they cracked the vault", "we cashed a check"),
            "savings",
            ("was closed", "raised its rates", "opened at nine", "hired a guard"),
        ),
    ),
    "bat": (
        Sense(
            "animal",
            ("it grew dark in the cave", "the owl woke up", "wings beat in the attic", "we heard moths at night"),
            "fruit",
            ("hung upside down", "caught an insect", "flew into the night", "folded its wings"),
        ),
        Sense(
            "sport",
            ("the pitcher threw the ball", "the fans stood up", "the inning had begun", "he put on a helmet"),
            "baseball",
            ("was made of ash", "cracked in two", "hit a home run", "slipped from his hands"),
        ),
    ),
    "spring": (
        Sense(
            "season",
            ("the snow melted", "winter was over", "the days grew longer", "the swallows came back"),
            "early",
            ("brought rain", "was warm", "made the trees bloom", "smelled of flowers"),
        ),
        Sense(
            "coil",
            ("she took the clock apart", "the mattress was worn", "he repaired the lock", "the hinge squeaked"),
            "metal",
            ("was rusty", "snapped", "was wound too tight", "needed oil"),
        ),
    ),
    "crane": (
        Sense(
            "bird",
            ("fog lay on the marsh", "the heron left its nest", "frogs sang in the pond", "we watched through a telescope"),
            "whooping",
            ("spread its feathers", "laid an egg", "danced in the shallows", "flew south"),
        ),
        Sense(
            "machine",
            ("the workers poured concrete", "the tower was half built", "trucks brought steel", "the harbor was busy"),
            "tower",
            ("lifted a beam", "swung its load", "needed a new cable", "was taken down"),
        ),
    ),
    "seal": (
        Sense(
            "animal",
            ("waves broke on the rocks", "the ice drifted north", "penguins dived for fish", "the beach was cold"),
            "harbor",
            ("barked loudly", "nursed its pup", "ate a herring", "slid into the sea"),
        ),
        Sense(
            "stamp",
            ("the king signed the letter", "the clerk folded the paper", "the treaty was ready", "she closed the envelope"),
            "wax",
            ("was red", "bore a crest", "proved it was genuine", "had been broken"),
        ),
    ),
    "mouse": (
        Sense(
            "animal",
            ("the cat sat in the barn", "the cheese was gone", "grain lay on the floor", "something ran in the wall"),
            "field",
            ("squeaked", "had a long tail", "hid in its hole", "nibbled a crumb"),
        ),
        Sense(
            "computer",
            ("the screen went black", "she typed on the keyboard", "he opened a window on his laptop", "the cursor froze"),
            "computer",
            ("had no battery", "was unplugged", "lost its signal", "clicked twice"),
        ),
    ),
}  # fmt: skip
_JOINED = ("and", "so", "but", "while")
_NEUTRAL = ("", "old ", "big ", "new ", "other ")


class Senses(Source, kind="senses"):
    """Every sentence that can be made of some of the ambiguous `words`; an example also names its "word" and its "sense".

    Which split a sentence belongs to is decided by its hash.
    """

    words: tuple[str, ...] = Field(default=tuple(WORDS), min_length=1)

    @field_validator("words")
    @classmethod
    def _known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if word not in WORDS:
                raise ValueError(f"there are no sentences about {word!r}; {nearest(word, WORDS)}")
        return words

    @property
    def fixed(self) -> bool:
        return True

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [
            example for word in self.words for example in _sentences(word) if hashed_split(example["text"]) == split
        ]


@lru_cache(maxsize=len(WORDS))
def _sentences(word: str) -> tuple[Example, ...]:
    return tuple(
        {"text": text, "word": word, "sense": sense.name} for sense in WORDS[word] for text in _written(word, sense)
    )


def _written(word: str, sense: Sense) -> Iterator[str]:
    for before, joined, neutral, after in itertools.product(sense.before, _JOINED, _NEUTRAL, sense.after):
        yield f"{before} {joined} the {neutral}{word} {after}"
    for neutral, after in itertools.product(_NEUTRAL, sense.after):
        yield f"the {neutral}{sense.compound} {word} {after}"
