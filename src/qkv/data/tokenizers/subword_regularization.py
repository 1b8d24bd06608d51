"""Subword regularization: random segmentations of training texts, by BPE-dropout or by sampling from a unigram model.

A model that sees `un loved`, `unlov ed` and `u n l o v ed` besides `unloved` learns how words are composed and becomes
robust to misspellings. BPE drops merges (Provilkov et al. 2020, BPE-dropout, arXiv:1910.13267); unigram samples from its
lattice (Kudo 2018, Subword Regularization, arXiv:1804.10959). The same seed gives the same segmentation in any process.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Sequence
from functools import cached_property
from random import Random
from sys import getsizeof
from typing import Any, Protocol

import tokenizers
from tokenizers import models

from ...nn.kernels.native.bpe_dropout import SEED_LIMIT, BPEDropout
from .pipelines import BYTES, contents

Word = tuple[int, ...]
"""A word's ids in the segmentation that `encode` returns."""

MOST_WORDS = 1 << 18  # words in the cache
MOST_BYTES = 32 << 20  # size of the cache of tokenized texts
ENTRY_BYTES = 100  # approximate size of a dictionary entry


class Sampler(Protocol):
    """Interface of the two ways to sample."""

    def sample(self, words: Sequence[Word], random: Random) -> list[int]:
        """Return the ids of a text, with a random segmentation of each word."""
        ...

    def sample_texts(self, texts: Sequence[bytes], seeds: Sequence[int]) -> list[list[int]]:
        """Return the ids of `packed` texts. Each text is sampled with its own seed."""
        ...


def sampler(raw: tokenizers.Tokenizer, dropout: float) -> Sampler:
    """Return the sampler for a tokenizer. Raises ValueError if its model has only one segmentation of a word."""
    data = contents(raw.model)
    unsplit = set(raw.get_added_tokens_decoder())
    if isinstance(raw.model, models.BPE) and data["merges"]:
        return MergeDropout(data, dropout, unsplit)
    if isinstance(raw.model, models.Unigram):
        return Lattice(data, dropout, unsplit)
    raise ValueError(
        "dropout needs a tokenizer with several segmentations of a word: use bpe or unigram, or set dropout to 0"
    )


def words_of(ids: Sequence[int], numbers: Sequence[int | None]) -> list[Word]:
    """Group a text's ids by their word indices."""
    words, start = [], 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or numbers[i] != numbers[start]:
            words.append(tuple(ids[start:i]))
            start = i
    return words


def packed(ids: Sequence[int], numbers: Sequence[int | None]) -> bytes:
    """Pack a tokenized text as int32: the number of words, the length of each word, and the ids of all words."""
    words = words_of(ids, numbers)
    return array("i", [len(words), *map(len, words), *ids]).tobytes()


def unpacked(text: bytes) -> list[Word]:
    """Return the words of a `packed` text."""
    values, words = array("i", text), []
    at = 1 + values[0]
    for length in values[1:at]:
        words.append(tuple(values[at : at + length]))
        at += length
    return words


def one_by_one(sampler: Sampler, texts: Sequence[bytes], seeds: Sequence[int]) -> list[list[int]]:
    """Sample `packed` texts in Python."""
    return [sampler.sample(unpacked(text), Random(seed)) for text, seed in zip(texts, seeds, strict=True)]


class PackedTexts:
    """Tokenizes texts without dropout and caches the `packed` results, up to about `MOST_BYTES`, for the next epoch."""

    def __init__(self, raw: tokenizers.Tokenizer) -> None:
        self._raw, self._known, self._bytes = raw, dict[str, bytes](), 0

    def of(self, texts: Sequence[str]) -> list[bytes]:
        """Return the `packed` texts."""
        found = [self._known.get(text) for text in texts]
        new = [i for i, one in enumerate(found) if one is None]
        for i, encoding in zip(
            new, self._raw.encode_batch([texts[i] for i in new], add_special_tokens=False), strict=True
        ):
            text = packed(encoding.ids, encoding.word_ids)
            self._remember(texts[i], text)
            found[i] = text
        return [one for one in found if one is not None]

    def _remember(self, text: str, split: bytes) -> None:
        size = getsizeof(text) + getsizeof(split) + ENTRY_BYTES
        if self._bytes + size <= MOST_BYTES:  # a full cache keeps its entries, which every epoch uses again
            self._known[text] = split
            self._bytes += size


# -- BPE ----------------------------------------------------------------------------------------------------------------


class MergeDropout:
    """BPE-dropout: each step drops every applicable merge with probability `p`, and applies the best of the others.

    Draws are needed only until the best candidate is kept. Instead of one draw per candidate, the number of kept
    candidates before the next drop is drawn, which is geometric,

        P(gap = k) = p · (1 − p)^k,     gap = ⌊log(1 − u) / log(1 − p)⌋ with u uniform in [0, 1)

    so a word of m merges keeps its usual segmentation if the gap is m or more, at the cost of one comparison.
    """

    def __init__(self, model: dict[str, Any], p: float, unsplit: set[int]) -> None:
        """`unsplit`: ids that are never split."""
        ids, prefix = model["vocab"], model["continuing_subword_prefix"] or ""
        self._log_keep = math.log1p(-p)
        self._merged: dict[tuple[int, int], tuple[int, int]] = {}  # pair → (rank, merged symbol)
        self._halves: dict[int, tuple[int, int]] = {}
        for rank, (left, right) in enumerate(model["merges"]):
            pair, new = (ids[left], ids[right]), ids[left + right.removeprefix(prefix)]
            self._merged.setdefault(pair, (rank, new))
            if new not in unsplit and new not in pair:  # merging with an empty piece gives the other piece
                self._halves.setdefault(new, pair)
        self._symbols: dict[Word, Word] = {}

    @cached_property
    def _kernel(self) -> BPEDropout | None:
        pairs, made = list(self._merged), [new for _, new in self._merged.values()]
        splits = [self._halves.get(new) == pair for pair, new in zip(pairs, made, strict=True)]
        return BPEDropout.of(pairs, made, splits, self._log_keep)

    def sample_texts(self, texts: Sequence[bytes], seeds: Sequence[int]) -> list[list[int]]:
        if self._kernel is not None and all(0 <= seed < SEED_LIMIT for seed in seeds):
            return self._kernel.sample(texts, seeds)
        return one_by_one(self, texts, seeds)

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
        """Draw the number of merges kept before the next one is dropped."""
        return int(math.log1p(-random.random()) / self._log_keep)

    def _remembered(self, word: Word) -> Word:
        if len(self._symbols) >= MOST_WORDS:
            self._symbols.clear()
        symbols = self._symbols[word] = tuple(self._apart(word))
        return symbols

    def _apart(self, word: Word) -> list[int]:
        """Return the symbols of a word before any merge: its characters or bytes."""
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
        """Merge by rank, dropping a candidate when the gap is used up; append to `split`, and return the remaining gap."""
        merged = self._merged
        size = len(symbols)
        after, before = list(range(1, size + 1)), list(range(-1, size - 1))
        heap = []
        for i in range(size - 1):
            merge = merged.get((symbols[i], symbols[i + 1]))
            if merge is not None:
                heap.append((merge[0], i, merge[1]))
        heapq.heapify(heap)
        dropped = []
        while heap:
            candidate = rank, i, new = heapq.heappop(heap)
            j = after[i]
            if symbols[i] < 0 or j == size or merged.get((symbols[i], symbols[j])) != (rank, new):
                continue  # an earlier merge has used one of its symbols
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
                    merge = merged.get((symbols[left], symbols[after[left]]))
                    if merge is not None:
                        heapq.heappush(heap, (merge[0], left, merge[1]))
            for candidate in dropped:  # dropped for this step only
                heapq.heappush(heap, candidate)
            dropped.clear()
        split += [symbol for symbol in symbols if symbol >= 0]
        return gap


# -- unigram ------------------------------------------------------------------------------------------------------------


class Lattice:
    """Subword regularization: a segmentation x of a word is drawn with probability proportional to P(x)^α.

    With s(piece) the log-probability of a piece, and the sum over the pieces that end at t,

        forward(0) = 0,   forward(t) = log Σ exp(forward(t − |piece|) + α · s(piece))

    a piece that ends at t is drawn with probability exp(forward(t − |piece|) + α · s(piece) − forward(t)), from the last
    piece of the word to the first. A small α makes the segmentations more equal in probability; a large one favors the
    best.
    """

    def __init__(self, model: dict[str, Any], alpha: float, unsplit: set[int]) -> None:
        """`unsplit`: ids that are neither split nor sampled."""
        vocab = model["vocab"]
        kept = {*unsplit, model["unk_id"], *(i for i, (piece, _) in enumerate(vocab) if piece in _BYTES)}
        self._pieces = {piece: (i, alpha * score) for i, (piece, score) in enumerate(vocab) if i not in kept}
        self._text = [None if i in kept else piece for i, (piece, _) in enumerate(vocab)]
        self._longest = max(map(len, self._pieces), default=0)
        self._lattices: dict[str, list[list[tuple[float, int, int]]]] = {}

    def sample_texts(self, texts: Sequence[bytes], seeds: Sequence[int]) -> list[list[int]]:
        return one_by_one(self, texts, seeds)

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
        """Return the pieces that end at each position: cumulative probability, start, id."""
        forward = [0.0] + [-math.inf] * len(word)
        lattice: list[list[tuple[float, int, int]]] = [[]]
        for end in range(1, len(word) + 1):
            ways = []
            for start in range(max(0, end - self._longest), end):
                piece = self._pieces.get(word[start:end])
                if piece is not None and forward[start] > -math.inf:
                    ways.append((forward[start] + piece[1], start, piece[0]))
            highest = max((score for score, _, _ in ways), default=-math.inf)
            total = sum(math.exp(score - highest) for score, _, _ in ways)
            if ways:
                forward[end] = highest + math.log(total)
            up_to, here = 0.0, []
            for score, start, piece_id in ways:
                up_to += math.exp(score - forward[end])
                here.append((up_to, start, piece_id))
            lattice.append(here)
        return lattice


_BYTES = frozenset(BYTES)
