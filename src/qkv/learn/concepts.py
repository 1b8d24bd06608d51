"""The concepts of a course on Transformers: what lectures call each, its page of the tour, and a command with what it shows.

The table is `concepts.yaml`. `qkv explain WORD` and `qkv tour WORD` look words up in it, and docs/lectures.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..core import yamls
from ..core.spec import nearest

TABLE = Path(__file__).with_suffix(".yaml")


class Concept(NamedTuple):
    """A row of the table.

    words: what lectures call it; `also`, further words that lead to it.
    tour: the part after the number in the name of a page of the tour.
    command: shows it without data, and its output contains `shows`, up to white space.
    explanation: the name of its explanation; yours: the command for a run or data of one's own; more: a page of docs/
    about it. All three may be empty.
    """

    title: str
    section: str
    words: tuple[str, ...]
    also: tuple[str, ...]
    tour: str
    command: str
    shows: str
    explanation: str
    yours: str
    more: str

    @property
    def places(self) -> dict[str, str]:
        """Where to read about it, what to run, and what to expect."""
        learn = {"learn": f"qkv tour {self.tour}", "run": self.command, "expect": self.shows}
        learn |= {"yours": self.yours} if self.yours else {}
        return learn | ({"more": f"docs/{self.more}"} if self.more else {})

    def names(self) -> Iterator[str]:
        """Every word that leads to the concept, as `find` compares it."""
        yield from dict.fromkeys(plain(word) for word in (self.title, *self.words, *self.also))


@cache
def concepts() -> tuple[Concept, ...]:
    """All concepts, in the order of a course."""
    sections = yamls.load(TABLE.read_text(encoding="utf-8"), TABLE.name)
    return tuple(_concept(section["section"], row) for section in sections for row in section["concepts"])


def _concept(section: str, row: dict[str, str]) -> Concept:
    words, also = (_words(row.get(key, "")) for key in ("words", "also"))
    command = row["run"]
    explanation = row.get("explain") or command.removeprefix("qkv explain ") * command.startswith("qkv explain ")
    shows, yours, more = str(row["shows"]), row.get("yours", ""), row.get("more", "")
    return Concept(row["concept"], section, words, also, row["tour"], command, shows, explanation, yours, more)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def plain(word: str) -> str:
    """A word in lower case, with hyphens for spaces, underscores and dashes."""
    return re.sub(r"[\s_‐-—]+", "-", str(word).strip().lower())


def find(word: str) -> Concept | None:
    """Return the concept that a word leads to, in the singular or plural and with or without articles; None if there is
    none."""
    return _index().get(plain(word)) or _loose_index().get(_loose(word))


def near(word: str, known: Iterable[str]) -> str:
    """Half a sentence with the names nearest to an unknown word: names within it, else of `known` and of the concepts."""
    parts = plain(word).split("-")
    spans = [(i, j) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)]
    for i, j in sorted(spans, key=lambda span: span[0] - span[1]):
        if (within := "-".join(parts[i:j])) in _index() and len(within) > 2:
            return f"did you mean {within!r}?"
    return nearest(plain(word), known, unlisted=_index())


def _loose(word: str) -> str:
    """A word without articles, plural endings and marks, unless it has nothing else."""
    parts = (re.sub(r"[^\w√²θΣ]", "", part) for part in plain(word).split("-"))
    kept = [part.removesuffix("s") if len(part) > 3 else part for part in parts if part not in ("", "a", "an", "the")]
    return "-".join(kept) or plain(word)


@cache
def _index() -> dict[str, Concept]:
    return {name: concept for concept in concepts() for name in concept.names()}


@cache
def _loose_index() -> dict[str, Concept]:
    found = dict[str, Concept]()
    for name, concept in _index().items():
        found.setdefault(_loose(name), concept)
    return found
