"""Pair counts and merges over a corpus of words, shared by BPE and WordPiece training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

Pair = tuple[str, str]

SHOWN = 12  # words of the corpus that a step holds


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One merge, which adds `token` to the vocabulary."""

    left: str
    right: str
    token: str
    count: int
    """Count of the pair in the corpus."""
    score: float
    """Score by which the pair was chosen: its count (BPE) or its likelihood score (WordPiece)."""
    symbols: int
    """Number of symbols in the corpus after the merge; it never grows."""
    words: tuple[tuple[str, ...], ...]
    """The corpus after the merge, each word as its symbols; of a larger corpus, the first few words that changed."""


class SymbolWords:
    """The distinct words of a corpus as lists of symbols, with counts of words, symbols and adjacent pairs.

    A merge updates only the words that contain the pair, so learning thousands of merges costs little more than
    reading the corpus once.
    """

    def __init__(self, counts: Mapping[str, int], split: Callable[[str], list[str]] = list, prefix: str = "") -> None:
        """`split` cuts a word into its initial symbols; `prefix` marks symbols that continue a word (`##`)."""
        self.prefix = prefix
        self.counts = list(counts.values())
        self.cut = [split(word) for word in counts]
        self.symbols: Counter[str] = Counter()
        self.size = 0  # symbols in the corpus
        self.pairs: Counter[Pair] = Counter()
        self._where: defaultdict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self.cut)):
            self._count(index, +1)

    def merge(self, pair: Pair) -> tuple[str, set[Pair]]:
        """Merge every occurrence of a pair, from the left. Return the new symbol, and the pairs whose counts changed."""
        token = pair[0] + pair[1].removeprefix(self.prefix)
        changed = {pair}
        for index in sorted(self._where[pair]):
            changed |= self._count(index, -1)
            self.cut[index] = joined(self.cut[index], pair, token)
            changed |= self._count(index, +1)
        return token, changed

    def step(self, pair: Pair, score: float) -> tuple[MergeStep, set[Pair]]:
        """Merge a pair like `merge`. Return the `MergeStep`, and the pairs whose counts changed."""
        count = self.pairs[pair]
        touched = sorted(self._where[pair])
        token, changed = self.merge(pair)
        shown = range(len(self.cut)) if len(self.cut) <= SHOWN else touched[:SHOWN]
        words = tuple(tuple(self.cut[index]) for index in shown)
        return MergeStep(*pair, token, count, score, self.size, words), changed

    def _count(self, index: int, sign: int) -> set[Pair]:
        """Add (+1) or subtract (−1) the symbols and pairs of one word, and return these pairs."""
        symbols, weight = self.cut[index], sign * self.counts[index]
        self.size += weight * len(symbols)
        for symbol in symbols:
            self.symbols[symbol] += weight
        pairs = list(pairwise(symbols))
        for pair in pairs:
            self.pairs[pair] += weight
            if sign > 0:
                self._where[pair].add(index)
            else:
                self._where[pair].discard(index)
        return set(pairs)


def joined(symbols: list[str], pair: Pair, token: str) -> list[str]:
    """Return a word's symbols with every occurrence of the pair replaced by `token`, from the left."""
    result: list[str] = []
    rest = iter(range(len(symbols)))
    for i in rest:
        if symbols[i] == pair[0] and i + 1 < len(symbols) and symbols[i + 1] == pair[1]:
            result.append(token)
            next(rest)
        else:
            result.append(symbols[i])
    return result
