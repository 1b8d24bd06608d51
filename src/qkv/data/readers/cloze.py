"""Cloze questions generated from plain text, for unsupervised question answering (Lewis et al. 2019)."""

from __future__ import annotations

import re
from random import Random
from typing import Literal

from pydantic import Field

from ..shuffle import mix
from ..source import Example, Skipped, Split, Table
from ..tables import ComputedTable, weight_of
from .squad import question_example
from .text import Text

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?]+|$)")
_WORD = re.compile(r"[\w'’-]+")
_NAMED = re.compile(r"(?<=\s)(?:[A-Z][\w-]*(?:\s(?:of\s|the\s|de\s)?[A-Z][\w-]*)*|\d+(?:[.,]\d+)*)")
_ASKS = {"name": ("Who", "What", "Where", "Which"), "number": ("When", "How many", "What"), "word": ("What", "How")}
_SHORTEST, _ENOUGH = 6, 3  # minimum number of words in the chosen sentence, and in the question


class Cloze(Text, kind="cloze"):
    """Questions that ask for a name, a number or some words of a sentence (Lewis et al. 2019, "Unsupervised Question
    Answering by Cloze Translation"). A question is a "What" or "Who" and the rest of the sentence, with words dropped.

    Paths and documents are as in `text`; each epoch asks different questions.

    longest: maximum length of a context in characters: whole sentences around the chosen one.
    dropped: the share of words that are dropped from a question.
    """

    documents: Literal["file", "line", "block"] = "line"
    longest: int = Field(default=1000, ge=50)
    dropped: float = Field(default=0.3, ge=0, lt=1)

    @property
    def fixed(self) -> bool:
        return False

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        texts = super().table(split)
        own = mix(seed, epoch) if split == "train" else 0

        def entry(i: int) -> Example | Skipped | None:
            entry = texts[i]
            return self._ask(entry["text"], Random(mix(own, i))) if isinstance(entry, dict) else entry

        return ComputedTable(len(texts), entry, weight_of(texts))

    def _ask(self, text: str, random: Random) -> Example | Skipped:
        spans = [match.span() for match in _SENTENCE.finditer(text)]
        long_enough = [n for n, (a, b) in enumerate(spans) if len(_WORD.findall(text[a:b])) >= _SHORTEST]
        if not long_enough:
            return Skipped("without a sentence to ask about")
        chosen = random.choice(long_enough)
        begin, end = spans[chosen]
        low, high = self._around(spans, chosen, random)
        start, stop, kind = _answer(text[begin:end], random)
        rest = _WORD.findall(f"{text[begin : begin + start]} {text[begin + stop : end]}")
        kept = [word for word in rest if random.random() >= self.dropped]
        if len(kept) < _ENOUGH:
            return Skipped("without a sentence to ask about")
        question = f"{random.choice(_ASKS[kind])} {' '.join(kept)}?"
        answer = text[begin + start : begin + stop]
        return question_example(question, text[low:high], (answer,), (begin + start - low,))

    def _around(self, spans: list[tuple[int, int]], chosen: int, random: Random) -> tuple[int, int]:
        """The begin and end of a context: the chosen sentence with as many of its neighbors as `longest` allows."""
        first = last = chosen
        while True:
            neighbors = [n for n in (first - 1, last + 1) if 0 <= n < len(spans)]
            fitting = [
                n
                for n in neighbors
                if max(spans[n][1], spans[last][1]) - min(spans[n][0], spans[first][0]) <= self.longest
            ]
            if not fitting:
                return spans[first][0], spans[last][1]
            added = random.choice(fitting)
            first, last = min(first, added), max(last, added)


def _answer(sentence: str, random: Random) -> tuple[int, int, str]:
    """The begin, end and kind of an answer in a sentence: a name or a number, or else one to three words."""
    words = list(_WORD.finditer(sentence))
    names = [match for match in _NAMED.finditer(sentence) if match.start() >= words[1].start()]
    if names and random.random() < 0.8:
        match = random.choice(names)
        return match.start(), match.end(), "number" if match[0][0].isdigit() else "name"
    first = random.randrange(1, len(words))
    last = min(len(words) - 1, first + random.randrange(3))
    return words[first].start(), words[last].end(), "word"
