"""Subword regularization: random segmentations of training texts, by BPE-dropout or by sampling from a unigram model.

A model that sees `un loved`, `unlov ed` and `u n l o v ed` besides `unloved` learns how words are composed and becomes
robust to misspellings. BPE drops merges (Provilkov et al. 2020, BPE-dropout, arXiv:1910.13267); unigram samples from its
lattice (Kudo 2018, Subword Regularization, arXiv:1804.10959). The same seed gives the same segmentation in any process.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import tokenizers
from tokenizers import models

from .pipelines import BYTES, contents

Word = tuple[int, ...]
"""A word's ids in the one split that `encode` gives."""

MOST_WORDS = 1 << 18  # words in the cache


class Sampler(Protocol):
    def sample(self, words: Sequence[Word], random: Random) -> list[int]:
        """The ids of a text, whose words are each split by chance."""
        ...


def sampler(raw: tokenizers.Tokenizer, dropout: float) -> Sampler:
    """The way to sample splits of this tokenizer. Raises ValueError where there is but one."""
    data = contents(raw.model)
    whole = set(raw.get_added_tokens_decoder())
    if isinstance(raw.model, models.BPE) and data["merges"]:
        return MergeDropout(data, dropout, whole)
    if isinstance(raw.model, models.Unigram):
        return Lattice(data, dropout, whole)
    raise ValueError("dropout needs several ways to split a word, which bpe and unigram tokenizers have")


def words_of(ids: Sequence[int], numbers: Sequence[int | None]) -> list[Word]:
    """A text's ids, grouped by the number of the word that each belongs to."""
    words, start = [], 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or numbers[i] != numbers[start]:
            words.append(tuple(ids[start:i]))
            start = i
    return words


# -- BPE ----------------------------------------------------------------------------------------------------------------


class MergeDropout:
    """BPE-dropout: at each step every merge that applies is left out with probability `p`; the best of the rest is made.

    Only the best candidates need a draw: the first that survives is the one. The draws that keep are counted down
    rather than drawn one by one: the number of them before the next drop is geometric,

        P(gap = k) = p · (1 − p)^k,     gap = ⌊log(1 − u) / log(1 − p)⌋ with u uniform in [0, 1)

    so that a word of m merges that begins with a gap of m or more keeps its usual split, at the cost of a comparison.
    """

    def __init__(self, model: dict[str, Any], p: float, whole: set[int]) -> None:
        """`whole`: ids that are never taken apart."""
        ids, prefix = model["vocab"], model["continuing_subword_prefix"] or ""
        self._log_keep = math.log1p(-p)
        self._merged: dict[tuple[int, int], tuple[int, int]] = {}  # pair → (rank, what it becomes)
        self._halves: dict[int, tuple[int, int]] = {}
        for rank, (left, right) in enumerate(model["merges"]):
            pair, new = (ids[left], ids[right]), ids[left + right.removeprefix(prefix)]
            self._merged.setdefault(pair, (rank, new))
            if new not in whole:
                self._halves.setdefault(new, pair)
        self._symbols: dict[Word, Word] = {}

    def sample(self, words: Sequence[Word], random: Random) -> list[int]:
        known = self._symbols
        split: list[int] = []
        gap = self._gap(random)
        for word in words:
            symbols = known.get(word)
            if symbols is None:
                symbols = self._remembered(word)
            merges = len(symbols) - len(word)
            if gap >= merges:
                gap -= merges
                split += word
            else:
                gap = self._merge(list(symbols), gap, random, split)
        return split

    def _gap(self, random: Random) -> int:
        """How many merges are kept before the next one is dropped."""
        return int(math.log1p(-random.random()) / self._log_keep)

    def _remembered(self, word: Word) -> Word:
        if len(self._symbols) >= MOST_WORDS:
            self._symbols.clear()
        symbols = self._symbols[word] = tuple(self._apart(word))
        return symbols

    def _apart(self, word: Word) -> list[int]:
        """The symbols that the merges of a word begin with: its characters, or bytes."""
        symbols, waiting = [], list(reversed(word))
        while waiting:
            symbol = waiting.pop()
            halves = self._halves.get(symbol)
            if halves is None:
                symbols.append(symbol)
            else:
                waiting += reversed(halves)
        return symbols

    def _merge(self, symbols: list[int], gap: int, random: Random, split: list[int]) -> int:
        """Merge by rank, dropping a candidate whenever the gap is used up; appends to `split`, returns the gap left."""
        merged = self._merged
        size = len(symbols)
        after, before = list(range(1, size + 1)), list(range(-1, size - 1))
        heap = []
        for i in range(size - 1):
            found = merged.get((symbols[i], symbols[i + 1]))
            if found is not None:
                heap.append((found[0], i, found[1]))
        heapq.heapify(heap)
        dropped = []
        while heap:
            candidate = rank, i, new = heapq.heappop(heap)
            j = after[i]
            if symbols[i] < 0 or j == size or merged.get((symbols[i], symbols[j])) != (rank, new):
                continue  # one of its symbols is part of another by now
            if gap == 0:
                gap = self._gap(random)
                dropped.append(candidate)
                continue
            gap -= 1
            symbols[i], symbols[j] = new, -1
            after[i] = after[j]
            if after[i] < size:
                before[after[i]] = i
            for left in (before[i], i):
                if left >= 0 and after[left] < size:
                    found = merged.get((symbols[left], symbols[after[left]]))
                    if found is not None:
                        heapq.heappush(heap, (found[0], left, found[1]))
            for candidate in dropped:  # dropped for this step only
                heapq.heappush(heap, candidate)
            dropped.clear()
        split += [symbol for symbol in symbols if symbol >= 0]
        return gap


# -- unigram ------------------------------------------------------------------------------------------------------------


class Lattice:
    """Subword regularization: a split x of a word is drawn with a probability that goes with P(x)^α.

    With s(piece) the log-probability of a piece, and the pieces that end at t,

        forward(0) = 0,   forward(t) = log Σ exp(forward(t − |piece|) + α · s(piece))

    the last piece of a word that ends at t is drawn with probability exp(forward(t − |piece|) + α · s(piece) −
    forward(t)), then the one before it. A small α makes splits more alike in probability; a large one keeps the best.
    """

    def __init__(self, model: dict[str, Any], alpha: float, whole: set[int]) -> None:
        """`whole`: ids that are never taken apart, nor made."""
        vocab = model["vocab"]
        kept = {*whole, model["unk_id"], *(i for i, (piece, _) in enumerate(vocab) if piece in _BYTES)}
        self._pieces = {piece: (i, alpha * score) for i, (piece, score) in enumerate(vocab) if i not in kept}
        self._text = [None if i in kept else piece for i, (piece, _) in enumerate(vocab)]
        self._longest = max(map(len, self._pieces), default=0)
        self._lattices: dict[str, list[list[tuple[float, int, int]]]] = {}

    def sample(self, words: Sequence[Word], random: Random) -> list[int]:
        split: list[int] = []
        for word in words:
            spelled = ""
            for symbol in word:
                piece = self._text[symbol] if symbol < len(self._text) else None
                if piece is not None:
                    spelled += piece
                    continue
                split += self._drawn(spelled, random)
                split.append(symbol)
                spelled = ""
            split += self._drawn(spelled, random)
        return split

    def _drawn(self, word: str, random: Random) -> list[int]:
        if not word:
            return []
        lattice = self._lattices.get(word)
        if lattice is None:
            if len(self._lattices) >= MOST_WORDS:
                self._lattices.clear()
            lattice = self._lattices[word] = self._built(word)
        drawn, end = [], len(word)
        while end:
            ways = lattice[end]
            at = random.random()
            end, piece = next(((start, piece) for up_to, start, piece in ways if at < up_to), ways[-1][1:])
            drawn.append(piece)
        return drawn[::-1]

    def _built(self, word: str) -> list[list[tuple[float, int, int]]]:
        """For each end the pieces that end there: cumulative probability, start, id."""
        forward = [0.0] + [-math.inf] * len(word)
        lattice: list[list[tuple[float, int, int]]] = [[]]
        for end in range(1, len(word) + 1):
            ways = []
            for start in range(max(0, end - self._longest), end):
                found = self._pieces.get(word[start:end])
                if found is not None and forward[start] > -math.inf:
                    ways.append((forward[start] + found[1], start, found[0]))
            highest = max((score for score, _, _ in ways), default=-math.inf)
            total = sum(math.exp(score - highest) for score, _, _ in ways)
            if ways:
                forward[end] = highest + math.log(total)
            up_to, here = 0.0, []
            for score, start, piece in ways:
                up_to += math.exp(score - forward[end])
                here.append((up_to, start, piece))
            lattice.append(here)
        return lattice


_BYTES = frozenset(BYTES)
