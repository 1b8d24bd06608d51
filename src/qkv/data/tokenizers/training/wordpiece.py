"""WordPiece: the tokenizer kind `wordpiece`, trained by likelihood (Schuster & Nakajima 2012).

The `tokenizers` library's `WordPieceTrainer` merges the most *frequent* pair: its vocabulary is BPE's, written with `##`.
WordPiece merges the pair that most increases the likelihood of the corpus under a unigram model: the pair with the highest

    score(a, b) = freq(ab) / (freq(a) · freq(b))

so `##q ##u`, which always occur together, come before `t ##h`, which are more frequent but also occur apart. With little
text this merges rare words first and leaves `the` in letters; `merge: frequency` merges like the library.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Self

import numpy as np
from pydantic import PositiveInt, model_validator
from tokenizers import decoders, models, normalizers, pre_tokenizers

from ..pipelines import CONTINUES, LONGEST_WORD, count_words
from .pair_merges import MergeStep, Pair, SymbolWords
from .spec import TokenizerSpec, Trace, VocabSize, require_unk

Merge = Literal["likelihood", "frequency"]


def train_wordpiece(
    counts: Mapping[str, int],
    size: int,
    *,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    merge: Merge = "likelihood",
    trace: Callable[[MergeStep], None] | None = None,
) -> list[str]:
    """Train WordPiece, and return its pieces: characters first, then merged pieces in the order of the merges.

    Args:
        counts: the words of the corpus with their counts.
        size: maximum number of pieces. All characters are always included, so the result is larger if `size` is too small
            for them; it is smaller if no pair is left to merge.
        min_frequency: pairs that occur less often are not merged.
        limit_alphabet: number of characters to keep, the most frequent; words with other characters are left out.
        merge: the score by which pairs are chosen.
    """
    counts = {word: count for word, count in counts.items() if len(word) <= LONGEST_WORD}
    characters = Counter[str]()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    ranked = sorted(characters, key=lambda c: (-characters[c], c))
    alphabet = set(ranked[:limit_alphabet])
    words = SymbolWords({w: n for w, n in counts.items() if alphabet.issuperset(w)}, pieces_of, CONTINUES)
    vocabulary = dict.fromkeys([*sorted(alphabet), *sorted(words.symbols.keys() - alphabet)])
    for step in wordpiece_steps(words, min_frequency, merge):
        if len(vocabulary) >= size:
            break
        vocabulary[step.token] = None
        if trace:
            trace(step)
    return list(vocabulary)


def pieces_of(word: str) -> list[str]:
    """Split a word into characters: `cat` is `c ##a ##t`."""
    return [word[0], *(CONTINUES + character for character in word[1:])]


def wordpiece_steps(words: SymbolWords, min_frequency: int = 1, merge: Merge = "likelihood") -> Iterator[MergeStep]:
    """Repeatedly merge the pair with the highest score, until no pair occurs `min_frequency` times.

    Ties go to the more frequent pair, then to the alphabetically first, so training is deterministic.
    """
    scores = _Scores(words, max(1, min_frequency), merge)
    while (best := scores.best()) is not None:
        pair, score = best
        step, changed = words.step(pair, score)
        scores.update(changed, (step.left, step.right, step.token))
        yield step


class _Scores:
    """The scores of all pairs in one array.

    A merge of a and b changes freq(a) and freq(b), and so the scores of all pairs with a or b: thousands for a common
    letter. An array updates them in one operation; a heap took 17 times as long for 28,000 pieces.
    """

    def __init__(self, words: SymbolWords, min_frequency: int, merge: Merge) -> None:
        self._words, self._min_frequency, self._merge = words, min_frequency, merge
        self._pairs: list[Pair] = []
        self._row: dict[Pair, int] = {}
        self._symbol: dict[str, int] = {}
        self._rows_of: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._count = np.zeros(0)
        self._ends = np.zeros((2, 0), dtype=np.int64)
        self._frequency = np.zeros(0)
        self._score = np.zeros(0)
        self.update(words.pairs, words.symbols)

    def best(self) -> tuple[Pair, float] | None:
        if not self._pairs:
            return None
        score = self._score[: len(self._pairs)]
        highest = score.max()
        if highest <= 0:
            return None
        rows = np.flatnonzero(score == highest)
        counts = self._count[rows]
        return min(self._pairs[row] for row in rows[counts == counts.max()]), float(highest)

    def update(self, changed: Iterable[Pair], symbols: Iterable[str]) -> None:
        """Update the counts of the changed pairs, and the scores of every pair with one of the symbols."""
        for pair in changed:
            count = self._words.pairs[pair]
            if pair in self._row or count >= self._min_frequency:
                row = self._row_of(pair)
                self._count[row] = count
        for symbol in symbols:
            number = self._symbol_id(symbol)
            self._frequency[number] = self._words.symbols[symbol]
        for symbol in symbols:
            rows = np.array(self._rows_of[symbol])
            count, (left, right) = self._count[rows], self._frequency[self._ends[:, rows]]
            apart = np.maximum(left * right, 1) if self._merge == "likelihood" else 1
            self._score[rows] = np.where(count >= self._min_frequency, count / apart, 0.0)

    def _row_of(self, pair: Pair) -> int:
        row = self._row.get(pair)
        if row is None:
            row = self._row[pair] = len(self._pairs)
            self._pairs.append(pair)
            if row >= len(self._count):
                size = 2 * row + 1024
                self._count, self._score = _resized(self._count, size), _resized(self._score, size)
                self._ends = _resized(self._ends, size)
            self._ends[:, row] = [self._symbol_id(symbol) for symbol in pair]
            for symbol in set(pair):
                self._rows_of[symbol].append(row)
        return row

    def _symbol_id(self, symbol: str) -> int:
        number = self._symbol.setdefault(symbol, len(self._symbol))
        if number >= len(self._frequency):
            self._frequency = _resized(self._frequency, 2 * number + 1024)
        return number


def _resized(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((*array.shape[:-1], size - array.shape[-1]), dtype=array.dtype)], axis=-1)


class WordPiece(TokenizerSpec, kind="wordpiece"):
    """WordPiece as in BERT (Schuster & Nakajima 2012, Devlin et al. 2019); `##` continues a word.

    Words are split at spaces and punctuation, control characters are dropped, and `lowercase` also strips accents, as
    in BERT: decoding restores the words, not the spacing. A word with an unseen character is unknown as a whole.
    """

    vocab_size: VocabSize = 8000
    min_frequency: PositiveInt = 2
    """Pairs that occur less often are not merged."""
    limit_alphabet: PositiveInt | None = None
    """Number of characters to keep, the most frequent; None keeps all."""
    merge: Merge = "likelihood"
    """The score by which pairs are merged: the likelihood of the texts, as published, or the frequency of the pair. With
    less than some hundred million words `frequency` gives the better vocabulary, which has common words as one piece."""

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return require_unk(self)

    def normalizer(self) -> normalizers.Normalizer:
        bert = normalizers.BertNormalizer(lowercase=self.lowercase)
        before = super().normalizer()
        return bert if before is None else normalizers.Sequence([before, bert])

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.BertPreTokenizer()

    def decoder(self) -> decoders.Decoder:
        return decoders.WordPiece(prefix=CONTINUES)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        counts = count_words(texts, self.pipeline(models.WordPiece(unk_token=self.unk)))
        pieces = train_wordpiece(
            counts,
            self.vocab_size - len(self.names),
            min_frequency=self.min_frequency,
            limit_alphabet=self.limit_alphabet,
            merge=self.merge,
            trace=trace,
        )
        self._check_size(self.vocab_size, len(pieces))
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*self.names, *pieces]))}
        return models.WordPiece(vocabulary, unk_token=self.unk, max_input_chars_per_word=LONGEST_WORD)
