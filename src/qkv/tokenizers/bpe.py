"""A corpus as words cut into symbols, merged pair by pair; and byte-pair encoding over it, as the paper writes it.

`Words` is what both merging trainers share: BPE (`bpe_steps`, Sennrich et al. 2016) and WordPiece (wordpiece.py) differ
only in which pair they take next. The BPE here is the readable one behind `qkv tokenizer train --trace`; tables are
trained by the `tokenizers` library, and a test holds that both make the same merges; where pairs that are equally frequent
are to be taken in lexicographic order, which the library can't, this one trains the table, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Literal

Pair = tuple[str, str]

SHOWN = 12  # words of the corpus that a step carries along


@dataclass(frozen=True, slots=True)
class Step:
    """One merge: the table grew by `token`."""

    left: str
    right: str
    token: str
    count: int
    """How often the pair stood in the corpus."""
    score: float
    """What the pair was chosen for: its count (BPE) or its likelihood score (WordPiece)."""
    symbols: int
    """How many symbols the corpus has left after the merge; it only shrinks."""
    words: tuple[tuple[str, ...], ...]
    """The corpus after the merge, a word being its symbols; of a larger one, the first few words that changed."""


class Words:
    """Distinct words with their counts, each a list of symbols, and the counts of symbols and of adjacent pairs.

    A merge touches only the words that hold the pair, so that a table of thousands of merges costs little more than
    reading the corpus once.
    """

    def __init__(self, counts: Mapping[str, int], split: Callable[[str], list[str]] = list, prefix: str = "") -> None:
        """`split` cuts a word into its first symbols; `prefix` marks symbols that continue a word (`##`)."""
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
        """Join the pair wherever it stands, from the left; the new symbol, and every pair whose count changed."""
        token = pair[0] + pair[1].removeprefix(self.prefix)
        changed = {pair}
        for index in sorted(self._where[pair]):
            changed |= self._count(index, -1)
            self.cut[index] = joined(self.cut[index], pair, token)
            changed |= self._count(index, +1)
        return token, changed

    def step(self, pair: Pair, score: float) -> tuple[Step, set[Pair]]:
        """`merge`, with an account of it."""
        count = self.pairs[pair]
        touched = sorted(self._where[pair])
        token, changed = self.merge(pair)
        shown = range(len(self.cut)) if len(self.cut) <= SHOWN else touched[:SHOWN]
        words = tuple(tuple(self.cut[index]) for index in shown)
        return Step(*pair, token, count, score, self.size, words), changed

    def _count(self, index: int, sign: int) -> set[Pair]:
        """Add (+1) or take away (−1) one word's symbols and pairs."""
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
    """A word with the pair made one symbol wherever it stands, from the left."""
    result: list[str] = []
    rest = iter(range(len(symbols)))
    for i in rest:
        if symbols[i] == pair[0] and i + 1 < len(symbols) and symbols[i + 1] == pair[1]:
            result.append(token)
            next(rest)
        else:
            result.append(symbols[i])
    return result


Ties = Literal["oldest", "lexicographic"]
"""Which of equally frequent pairs BPE merges first: the one with the older symbols (characters by code point, then merged
symbols as they were made), as the `tokenizers` library does; or the lexicographically greatest."""


def bpe_steps(
    counts: Mapping[str, int],
    merges: int,
    min_frequency: int = 1,
    ties: Ties = "oldest",
    spelled: Callable[[str], Any] = str,
) -> Iterator[Step]:
    """Byte-pair encoding: merge the most frequent pair, again and again (Sennrich et al. 2016, arXiv:1508.07909).

    `spelled` is what lexicographic order compares of a symbol: its bytes, where symbols stand for bytes. Stops after
    `merges` new symbols, or when no pair is left that occurs `min_frequency` times.
    """
    words = Words(counts)
    age = {symbol: i for i, symbol in enumerate(sorted(words.symbols))}
    limit = len(age) + merges

    def entry(pair: Pair) -> tuple[int, Any, Pair]:
        left, right = pair
        rank = (age[left], age[right]) if ties == "oldest" else _Greatest((spelled(left), spelled(right)))
        return -words.pairs[pair], rank, pair

    waiting = [entry(pair) for pair in words.pairs]
    heapify(waiting)
    while len(age) < limit and waiting:
        count, _, pair = heappop(waiting)
        if -count != words.pairs[pair]:
            continue  # of an earlier step: its new count stands there, too
        if -count < max(1, min_frequency):
            return
        step, changed = words.step(pair, -count)
        age.setdefault(step.token, len(age))
        for other in changed:
            if words.pairs[other] > 0:
                heappush(waiting, entry(other))
        yield step


class _Greatest:
    """Turns an order round, so that a heap gives the greatest first."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Greatest) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Greatest) and self.value == other.value
