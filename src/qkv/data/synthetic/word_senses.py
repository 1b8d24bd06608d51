"""Generated sentences with ambiguous words, for word-sense probes: the `bank` of a river, and the bank for money.

    we rowed down the river and the old bank was muddy
    he counted the money so the bank raised its rates

The words that decide the sense come before the ambiguous word, so a causal model can know it at the word, and what
follows depends on it, so language modeling alone rewards it. No model sees the sense label.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field, field_validator

from ...core.spec import brief, nearest
from ..source import Example, Source, Split, Table
from .base import hashed_split


class Sense(NamedTuple):
    """One meaning of a word: the clauses before and after it, and the word that it forms a compound with."""

    name: str
    before: tuple[str, ...]
    compound: str
    after: tuple[str, ...]


# For each sense of a word: its name and compound, the clauses before the word, and those after it.
_SENSES = """
bank: river, river
  we rowed down the river / she fished in the stream / he swam through cold water / they saw the ferry
  was muddy / was steep and green / was full of reeds / had been washed away
bank: money, savings
  he counted the money / she asked for a loan / they cracked the vault / we cashed a check
  was closed / raised its rates / opened at nine / hired a guard
bat: animal, fruit
  it grew dark in the cave / the owl woke up / wings beat in the attic / we heard moths at night
  hung upside down / caught an insect / flew into the night / folded its wings
bat: sport, baseball
  the pitcher threw the ball / the fans stood up / the inning had begun / he put on a helmet
  was made of ash / cracked in two / hit a home run / slipped from his hands
spring: season, early
  the snow melted / winter was over / the days grew longer / the swallows came back
  brought rain / was warm / made the trees bloom / smelled of flowers
spring: coil, metal
  she took the clock apart / the mattress was worn / he repaired the lock / the hinge squeaked
  was rusty / snapped / was wound too tight / needed oil
crane: bird, whooping
  fog lay on the marsh / the heron left its nest / frogs sang in the pond / we watched through a telescope
  spread its feathers / laid an egg / danced in the shallows / flew south
crane: machine, tower
  the workers poured concrete / the tower was half built / trucks brought steel / the harbor was busy
  lifted a beam / swung its load / needed a new cable / was taken down
seal: animal, harbor
  waves broke on the rocks / the ice drifted north / penguins dived for fish / the beach was cold
  barked loudly / nursed its pup / ate a herring / slid into the sea
seal: stamp, wax
  the king signed the letter / the clerk folded the paper / the treaty was ready / she closed the envelope
  was red / bore a crest / proved it was genuine / had been broken
mouse: animal, field
  the cat sat in the barn / the cheese was gone / grain lay on the floor / something ran in the wall
  squeaked / had a long tail / hid in its hole / nibbled a crumb
mouse: computer, computer
  the screen went black / she typed on the keyboard / he opened a window on his laptop / the cursor froze
  had no battery / was unplugged / lost its signal / clicked twice
"""


def _parsed(text: str) -> dict[str, tuple[Sense, ...]]:
    words: dict[str, tuple[Sense, ...]] = {}
    lines = text.strip().splitlines()
    for heading, *clauses in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        word, name, compound = heading.replace(":", ",").split(", ")
        before, after = (tuple(line.strip().split(" / ")) for line in clauses)
        words[word] = (*words.get(word, ()), Sense(name, before, compound, after))
    return words


WORDS = _parsed(_SENSES)
_JOINED = ("and", "so", "but", "while")
_NEUTRAL = ("", "old ", "big ", "new ", "other ")


class Senses(Source, kind="senses"):
    """All sentences about some of the ambiguous `words`; an example also has its "word" and its "sense".

    The hash of a sentence decides its split.
    """

    words: tuple[str, ...] = Field(default=tuple(WORDS), min_length=1)

    @field_validator("words")
    @classmethod
    def _known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if word not in WORDS:
                raise ValueError(f"there are no sentences about {brief(word)}; {nearest(word, WORDS)}")
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
        {"text": text, "word": word, "sense": sense.name} for sense in WORDS[word] for text in _texts(word, sense)
    )


def _texts(word: str, sense: Sense) -> Iterator[str]:
    for before, joined, neutral, after in itertools.product(sense.before, _JOINED, _NEUTRAL, sense.after):
        yield f"{before} {joined} the {neutral}{word} {after}"
    for neutral, after in itertools.product(_NEUTRAL, sense.after):
        yield f"the {neutral}{sense.compound} {word} {after}"
