"""Generated sentences with named entities in IOB2: people, places, companies and dates, told apart by context only."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from ..source import Example
from .base import GeneratedSource, random_name

_MONTHS = ("January", "March", "April", "June", "August", "October", "December")
_SIZES = {"person": (1, 2), "place": (1, 2), "company": (1, 3)}
_SENTENCES = (
    "{person} was born in {place} on {date} .",
    "{person} , who lives near {place} , works for {company} .",
    "Shares of {company} fell after {person} left on {date} .",
    "The road from {place} to {place} is closed until {date} .",
    "{company} opened its first office in {place} .",
    '" We never saw {place} again , " said {person} .',
    "{company} hired {person} and {person} .",
    "Yesterday {person} wrote to the mayor of {place} .",
    "Nobody at {company} had heard of {place} before {date} .",
    "The painter {person} moved to {place} , and {company} paid for it .",
    "It rained on {date} , and all day long .",
    "Prices rose , as {company} said on {date} .",
)


class Mentions(GeneratedSource, kind="mentions"):
    """Sentences with entities in IOB2. Names are random combinations of syllables, so most names are unseen."""

    tags: ClassVar[tuple[str, ...]] = (
        "O",
        *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("company", "date", "person", "place")),
    )

    def generate(self, random: Random) -> Example:
        words: list[str] = []
        tags: list[str] = []
        for word in random.choice(_SENTENCES).split():
            kind = word[1:-1] if word.startswith("{") else ""
            parts = _entity(kind, random) if kind else [word]
            words += parts
            tags += [f"{'I' if i else 'B'}-{kind}" if kind else "O" for i in range(len(parts))]
        return {"text": " ".join(words), "words": words, "tags": tags}


def _entity(kind: str, random: Random) -> list[str]:
    if kind == "date":
        return [str(random.randint(1, 28)), random.choice(_MONTHS), str(random.randint(1900, 2030))]
    return [random_name(random) for _ in range(random.randint(*_SIZES[kind]))]
