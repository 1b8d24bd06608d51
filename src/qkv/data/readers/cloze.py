"""Cloze questions generated from plain text, for unsupervised question answering (Lewis et al. 2019)."""

from __future__ import annotations

import re
from random import Random
from typing import Literal

from pydantic import Field

from ...core.shuffle import mix
from ..source import Example, Skipped, Split, Table
from .text import Text

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?]+|$)")
_WORD = re.compile(r"[\w'’-]+")
_NAMED = re.compile(r"(?<=\s)(?:[A-Z][\w-]*(?:\s(?:of\s|the\s|de\s)?[A-Z][\w-]*)*|\d+(?:[.,]\d+)*)")
_ASKS = {"name": ("Who", "What", "Where", "Which"), "number": ("When", "How many", "What"), "word": ("What", "How")}
_SHORTEST, _ENOUGH = 6, 3  # words of a sentence that is asked about, and of what is left for the question


class Cloze(Text, kind="cloze"):
    """A sentence of a paragraph loses a name, a number or some words, which the question asks for (Lewis et al. 2019,
    "Unsupervised Question Answering by Cloze Translation"): what is left, with words dropped, behind a "What" or "Who".

    Paths and documents are those of `text`; each epoch asks other questions.

    longest: characters of a context at most, whole sentences around the one that is asked about.
    dropped: the share of its words that a question does without.
    """

    documents: Literal["file", "line", "block"] = "line"
    longest: int = Field(default=1000, ge=50)
    dropped: float = Field(default=0.3, ge=0, lt=1)

    @property
    def fixed(self) -> bool:
        return False

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return _Asked(super().table(split), self, mix(seed, epoch) if split == "train" else 0)


class _Asked:
    """A question about each paragraph, by chance."""

    def __init__(self, table: Table, spec: Cloze, seed: int) -> None:
        self._table, self._spec, self._seed = table, spec, seed
        self.weight = getattr(table, "weight", 1)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, i: int) -> Example | Skipped | None:
        entry = self._table[i]
        return self._ask(entry["text"], Random(mix(self._seed, i))) if isinstance(entry, dict) else entry

    def _ask(self, text: str, random: Random) -> Example | Skipped:
        spans = [match.span() for match in _SENTENCE.finditer(text)]
        good = [n for n, (a, b) in enumerate(spans) if len(_WORD.findall(text[a:b])) >= _SHORTEST]
        if not good:
            return Skipped("without a sentence to ask about")
        chosen = random.choice(good)
        begin, end = spans[chosen]
        low, high = self._around(spans, chosen, random)
        start, stop, kind = _answer(text[begin:end], random)
        left = _WORD.findall(f"{text[begin : begin + start]} {text[begin + stop : end]}")
        kept = [word for word in left if random.random() >= self._spec.dropped]
        if len(kept) < _ENOUGH:
            return Skipped("without a sentence to ask about")
        question = f"{random.choice(_ASKS[kind])} {' '.join(kept)}?"
        context, answer = text[low:high], text[begin + start : begin + stop]
        return {
            "text": f"{question}\n{context}",
            "question": question,
            "context": context,
            "answers": (answer,),
            "starts": (begin + start - low,),
        }

    def _around(self, spans: list[tuple[int, int]], chosen: int, random: Random) -> tuple[int, int]:
        """From the first to the last character of the sentences that stand around one, as many as there is room for."""
        first = last = chosen
        while True:
            more = [n for n in (first - 1, last + 1) if 0 <= n < len(spans)]
            fits = [
                n
                for n in more
                if max(spans[n][1], spans[last][1]) - min(spans[n][0], spans[first][0]) <= self._spec.longest
            ]
            if not fits:
                return spans[first][0], spans[last][1]
            taken = random.choice(fits)
            first, last = min(first, taken), max(last, taken)


def _answer(sentence: str, random: Random) -> tuple[int, int, str]:
    """Where the words stand that are asked for, and of which kind they are."""
    words = list(_WORD.finditer(sentence))
    named = [match for match in _NAMED.finditer(sentence) if match.start() >= words[1].start()]
    if named and random.random() < 0.8:
        match = random.choice(named)
        return match.start(), match.end(), "number" if match[0][0].isdigit() else "name"
    first = random.randrange(1, len(words))
    last = min(len(words) - 1, first + random.randrange(3))
    return words[first].start(), words[last].end(), "word"
