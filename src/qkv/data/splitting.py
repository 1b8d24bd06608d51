"""How a trained tokenizer splits a word, step by step: merges in order, longest matches, or the most probable pieces.

The library only gives results; the algorithms are written out here to be looked at, and a test holds that they end where
the library does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .tokenizer import Tokenizer

RUNNERS_UP = 4
UNKNOWN_PENALTY = 10.0  # how far an unknown character lies below the least probable piece (SentencePiece's kUnkPenalty)


@dataclass(frozen=True, slots=True)
class Merge:
    """BPE: the earliest-learned merge that applies, at every place where it does."""

    rank: int
    """Its line in the table, from 1: how early it was learned."""
    left: str
    right: str
    symbols: tuple[str, ...]
    """The word after it."""

    def __str__(self) -> str:
        return f"{' '.join(self.symbols)}    {self.left} + {self.right}, merge {self.rank}"


@dataclass(frozen=True, slots=True)
class LongestMatch:
    """WordPiece: the longest piece of the vocabulary that the rest of the word begins with."""

    tried: tuple[str, ...]
    """Longer beginnings that are no pieces."""
    found: str | None
    """None: no piece at all, which makes the whole word unknown."""

    def __str__(self) -> str:
        found = "no piece begins so: the word is unknown" if self.found is None else self.found
        return f"{found}    after {', '.join(self.tried)}" if self.tried else found


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Unigram: one way to cut the word, and its log-probability, the sum over its pieces. The best way comes first."""

    symbols: tuple[str, ...]
    log_prob: float

    def __str__(self) -> str:
        return f"{' '.join(self.symbols)}    {self.log_prob:.4f}"


Action = Merge | LongestMatch | Segmentation


@dataclass(frozen=True, slots=True)
class Split:
    """What became of one word: of the text, a part that the model sees alone."""

    word: str
    start: tuple[str, ...]
    """The symbols that the first step begins with."""
    steps: tuple[Action, ...]
    pieces: tuple[str, ...]
    ids: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Splitter:
    """Explains splits of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._raw = tokenizer.raw
        self._markers = re.compile("|".join(map(re.escape, tokenizer.markers)) or "(?!)")
        self._model = json.loads(self._raw.model.__getstate__())
        self._explain: Callable[[str], tuple[list[str], list[Action]]] = {
            "BPE": self._bpe,
            "WordPiece": self._wordpiece,
            "Unigram": self._unigram,
        }.get(self._model["type"], self._whole)

    def split(self, text: str) -> list[Split]:
        """Every word of the text as the pre-tokenizer cuts it. Raises ValueError for text that can't be encoded."""
        words: list[Split] = []
        markers = [*self._markers.finditer(text), None]
        start = 0
        for marker in markers:
            words += [self._word(word) for word in self._words(text[start : marker.start() if marker else None], start)]
            if marker:
                start, name = marker.end(), marker.group()
                words.append(Split(name, (name,), (), (name,), (self._raw.token_to_id(name),)))
        return words

    def _words(self, text: str, start: int) -> list[str]:
        raw = self._raw
        text = raw.normalizer.normalize_str(text) if raw.normalizer else text
        if raw.pre_tokenizer is None:
            return [text] if text else []
        if start and text:  # so that a pre-tokenizer which begins a text with a space sees that this is not its beginning
            return [word for word, (begin, _) in raw.pre_tokenizer.pre_tokenize_str(f"\n{text}") if begin]
        return [word for word, _ in raw.pre_tokenizer.pre_tokenize_str(text)]

    def _word(self, word: str) -> Split:
        start, steps = self._explain(word)
        tokens = self._raw.model.tokenize(word)
        return Split(word, tuple(start), tuple(steps), tuple(t.value for t in tokens), tuple(t.id for t in tokens))

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
        while pairs := [p for p in zip(symbols, symbols[1:], strict=False) if p in self._ranks]:
            pair = min(pairs, key=self._ranks.__getitem__)
            symbols = _merged(symbols, pair, pair[0] + pair[1].removeprefix(prefix))
            steps.append(Merge(self._ranks[pair], *pair, tuple(symbols)))
        return start, steps

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {(left, right): rank for rank, (left, right) in enumerate(self._model["merges"], 1)}

    def _known(self, symbol: str) -> list[str]:
        """A character the vocabulary has; else its bytes, or the unknown token."""
        if symbol in self._model["vocab"]:
            return [symbol]
        spelled = [f"<0x{byte:02X}>" for byte in symbol.encode()]
        if self._model["byte_fallback"] and all(byte in self._model["vocab"] for byte in spelled):
            return spelled
        return [self._model["unk_token"]] if self._model["unk_token"] else []

    # -- WordPiece ----------------------------------------------------------------------------------------------

    def _wordpiece(self, word: str) -> tuple[list[str], list[Action]]:
        steps: list[Action] = []
        start = 0
        while start < len(word):
            rest = ("" if start == 0 else self._model["continuing_subword_prefix"]) + word[start:]
            lengths = range(len(word) - start)
            ends = [rest[: len(rest) - cut] for cut in lengths]
            found = next((piece for piece in ends if piece in self._model["vocab"]), None)
            steps.append(LongestMatch(tuple(ends[: ends.index(found)] if found else ends), found))
            if found is None:
                break
            start += len(found) - (len(rest) - (len(word) - start))
        return [word], steps

    # -- Unigram ------------------------------------------------------------------------------------------------

    def _unigram(self, word: str) -> tuple[list[str], list[Action]]:
        best = tuple(token for token, _ in _spelled(word, self._raw.model.tokenize(word)))
        ways = self._ways(word)
        chosen = next((way for way in ways if way.symbols == best), ways[0])
        others = [way for way in ways if way is not chosen][:RUNNERS_UP]
        return list(word), [chosen, *others]

    def _ways(self, word: str) -> list[Segmentation]:
        """The most probable segmentations: for every prefix of the word its best few, each from those of shorter ones."""
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
        return ways[-1]

    @cached_property
    def _scores(self) -> tuple[dict[str, float], int]:
        scores = {piece: score for piece, score in self._model["vocab"]}
        return scores, max(map(len, scores))
