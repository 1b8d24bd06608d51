"""Explains how a trained tokenizer splits a word, step by step: BPE merges, longest matches, or most probable pieces.

The library only returns results. These readable versions of its algorithms are tested to give the same ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise, takewhile

from .pipelines import any_of
from .tokenizer import Tokenizer
from .training.pair_merges import joined

RUNNERS_UP = 4
UNKNOWN_PENALTY = (
    10.0  # SentencePiece's kUnkPenalty: log-probability of an unknown character, below the least probable piece
)


@dataclass(frozen=True, slots=True)
class Merge:
    """A BPE step: the applicable merge that was learned first, applied at all its places in the word."""

    rank: int
    """The merge's line in the table, from 1: the order in which merges were learned."""
    left: str
    right: str
    symbols: tuple[str, ...]
    """The word's symbols after the merge."""

    def __str__(self) -> str:
        return f"{' '.join(self.symbols)}    {self.left} + {self.right}, merge {self.rank}"


@dataclass(frozen=True, slots=True)
class LongestMatch:
    """A WordPiece step: the longest piece of the vocabulary that is a prefix of the rest of the word."""

    tried: tuple[str, ...]
    """Longer prefixes, which the vocabulary lacks."""
    piece: str | None
    """The longest match; None if there is none, which makes the whole word unknown."""

    def __str__(self) -> str:
        match = "no piece matches: the word is unknown" if self.piece is None else self.piece
        return f"{match}    after {', '.join(self.tried)}" if self.tried else match


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A unigram segmentation of the word and its log-probability, the sum over its pieces. The most probable comes first."""

    symbols: tuple[str, ...]
    log_prob: float

    def __str__(self) -> str:
        return f"{' '.join(self.symbols)}    {self.log_prob:.4f}"


Action = Merge | LongestMatch | Segmentation


@dataclass(frozen=True, slots=True)
class WordSplit:
    """The explained split of one word, a part of the text that the model tokenizes by itself."""

    word: str
    start: tuple[str, ...]
    """The symbols before the first step."""
    steps: tuple[Action, ...]
    pieces: tuple[str, ...]
    ids: tuple[int, ...]


class Splitter:
    """Explains how one tokenizer splits texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._raw = tokenizer, tokenizer.raw
        added = self._raw.get_added_tokens_decoder().values()
        markers = {token.content: token.normalized for token in added if not token.special}
        self._before = any_of(name for name, normalized in markers.items() if not normalized)
        self._after = any_of(name for name, normalized in markers.items() if normalized)
        self._model = json.loads(self._raw.model.__getstate__())
        self._explain: Callable[[str], tuple[list[str], list[Action]]] = {
            "BPE": self._bpe,
            "WordPiece": self._wordpiece,
            "Unigram": self._unigram,
        }.get(self._model["type"], self._whole)

    def split(self, text: str) -> list[WordSplit]:
        """Return the split of every word of the text, as cut by the pre-tokenizer, and of every marker.

        Most markers are found in the original text, SentencePiece's user-defined symbols in the normalized text.
        """
        splits: list[WordSplit] = []
        for part, marker in _parts(self._before, text):
            splits += [self._marker(part)] if marker else self._normalized(part, first=not splits)
        return splits

    def _normalized(self, part: str, first: bool) -> list[WordSplit]:
        part = self._raw.normalizer.normalize_str(part) if self._raw.normalizer else part
        splits: list[WordSplit] = []
        for piece, marker in _parts(self._after, part):
            begins = first and not splits
            splits += [self._marker(piece)] if marker else map(self._word, self._words(piece, begins))
        return splits

    def _words(self, part: str, begins: bool) -> list[str]:
        if self._raw.pre_tokenizer is None:
            return [part]
        first, *others = [word for word, _ in self._raw.pre_tokenizer.pre_tokenize_str(part)] or [""]
        if not begins and not part.startswith((" ", "▁")):
            first = first.removeprefix("▁")  # only the start of the whole text gets a space
        return [word for word in (first, *others) if word]

    def _marker(self, name: str) -> WordSplit:
        return WordSplit(name, (name,), (), (name,), (self._tokenizer.id(name),))

    def _word(self, word: str) -> WordSplit:
        start, steps = self._explain(word)
        tokens = self._raw.model.tokenize(word)
        return WordSplit(word, tuple(start), tuple(steps), tuple(t.value for t in tokens), tuple(t.id for t in tokens))

    def _whole(self, word: str) -> tuple[list[str], list[Action]]:
        return [word], []

    # -- BPE ----------------------------------------------------------------------------------------------------

    def _bpe(self, word: str) -> tuple[list[str], list[Action]]:
        model = self._model
        if model["ignore_merges"] and word in model["vocab"]:
            return [word], []
        prefix, suffix = model["continuing_subword_prefix"] or "", model["end_of_word_suffix"] or ""
        marked = [prefix * (i > 0) + c + suffix * (i == len(word) - 1) for i, c in enumerate(word)]
        symbols = [part for symbol in marked for part in self._known(symbol)]
        start, steps = symbols, list[Action]()
        while pairs := [p for p in pairwise(symbols) if p in self._ranks]:
            pair = min(pairs, key=self._ranks.__getitem__)
            symbols = joined(symbols, pair, pair[0] + pair[1].removeprefix(prefix))
            steps.append(Merge(self._ranks[pair], *pair, tuple(symbols)))
        return start, steps

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {(left, right): rank for rank, (left, right) in enumerate(self._model["merges"], 1)}

    def _known(self, symbol: str) -> list[str]:
        """Return a symbol of the vocabulary itself; otherwise its bytes, or the unknown token."""
        if symbol in self._model["vocab"]:
            return [symbol]
        spelled = [f"<0x{byte:02X}>" for byte in symbol.encode()]
        if self._model["byte_fallback"] and all(byte in self._model["vocab"] for byte in spelled):
            return spelled
        return [self._model["unk_token"]] if self._model["unk_token"] else []

    # -- WordPiece ----------------------------------------------------------------------------------------------

    def _wordpiece(self, word: str) -> tuple[list[str], list[Action]]:
        vocabulary, prefix = self._model["vocab"], self._model["continuing_subword_prefix"]
        steps: list[Action] = []
        start = 0
        while start < len(word) <= self._model["max_input_chars_per_word"]:
            mark = prefix if start else ""
            beginnings = [mark + word[start:end] for end in range(len(word), start, -1)]
            tried = tuple(takewhile(lambda piece: piece not in vocabulary, beginnings))
            if len(tried) == len(beginnings):
                return [word], [*steps, LongestMatch(tried, None)]
            piece = beginnings[len(tried)]
            steps.append(LongestMatch(tried, piece))
            start += len(piece) - len(mark)
        return [word], steps

    # -- Unigram ------------------------------------------------------------------------------------------------

    def _unigram(self, word: str) -> tuple[list[str], list[Action]]:
        spans = sorted({token.offsets for token in self._raw.model.tokenize(word)})  # in bytes
        best = tuple(word.encode()[begin:end].decode() for begin, end in spans)
        ways = self._ways(word)
        ways.sort(key=lambda way: way.symbols != best)  # of equally probable ones, the library's comes first
        return list(word), [*ways[: RUNNERS_UP + 1]]

    def _ways(self, word: str) -> list[Segmentation]:
        """Return the most probable segmentations, by dynamic programming over the prefixes of the word."""
        scores, longest = self._scores
        unknown = min(scores.values()) - UNKNOWN_PENALTY
        ways: list[list[Segmentation]] = [[Segmentation((), 0.0)]]
        for end in range(1, len(word) + 1):
            here: list[Segmentation] = []
            for start in range(max(0, end - longest), end):
                piece = word[start:end]
                score = scores.get(piece, unknown if end - start == 1 else None)
                if score is not None:
                    here += [Segmentation((*way.symbols, piece), way.log_prob + score) for way in ways[start]]
            here.sort(key=lambda way: -way.log_prob)
            ways.append(here[: RUNNERS_UP + 1])
        return [Segmentation(self._fused(way.symbols), way.log_prob) for way in ways[-1]]

    def _fused(self, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Join adjacent unknown characters to one unknown piece."""
        scores, _ = self._scores
        runs = groupby(symbols, key=scores.__contains__)
        return tuple(piece for known, run in runs for piece in (run if known else ["".join(run)]))

    @cached_property
    def _scores(self) -> tuple[dict[str, float], int]:
        scores = dict(self._model["vocab"])
        return scores, max(map(len, scores))


def _parts(markers: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    """Split a text at its markers; yield the parts that are not empty, and whether each is a marker."""
    after = 0
    for marker in markers.finditer(text):
        if marker.start() > after:
            yield text[after : marker.start()], False
        yield marker.group(), True
        after = marker.end()
    if after < len(text):
        yield text[after:], False
