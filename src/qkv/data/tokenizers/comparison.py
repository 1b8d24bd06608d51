"""Tokenizers compared on a text: how many tokens it takes, what is unknown, and which words are split differently.

`compare` reads a text once and gives a `TokenizerComparison`. A word is what stands between white space. A token belongs
to the word of its first character that is not white space, so `▁the` is a token of `the`, and `▁` alone of no word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from unicodedata import combining

from tokenizers import models

from .tokenizer import Tokenizer
from .tokenizer_json import encoding_errors

Place = tuple[int, int]  # of a token in its text: first character, and the one after the last

LINES = 1024  # in a batch
LONG = 12  # characters in a long word, at least

_WORD = re.compile(r"\S+")
_LETTER = re.compile(r"[^\W\d_]")
_VOWEL = re.compile(r"[aeiouy]", re.IGNORECASE)
_SIGN = re.compile(r"[^a-zA-Z'-]")
_NONE, _KNOWN, _UNKNOWN = b"\0", b"\1", b"\2"  # a character in no token, in a known and in an unknown one


@dataclass(frozen=True, slots=True)
class TextSize:
    """A text's lines, words between white space, characters and UTF-8 bytes, without line ends."""

    lines: int
    words: int
    distinct_words: int
    characters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TokenizerFigures:
    """What one tokenizer makes of a text."""

    kind: str
    vocab_size: int
    used: int
    """Tokens of the vocabulary that the text has."""
    tokens: int
    tokens_per_word: float
    """Also called fertility (Rust et al. 2021)."""
    characters_per_token: float
    bytes_per_token: float
    whole_words: float
    """Share of the words that are one token."""
    coverage: float
    """Share of the characters, without white space, that are in a token other than the unknown one."""
    unknown: int
    """Unknown tokens, and runs of characters that are in no token."""
    restored: float
    """Share of the lines that decoding gives back exactly."""
    unknown_pieces: Mapping[str, int]
    """What is unknown, and how often; the most frequent first."""


@dataclass(frozen=True, slots=True)
class DifferentSplit:
    """A word that tokenizers split into different numbers of tokens."""

    word: str
    group: str
    """`numbers`, `shorthand`, `long words` or `other words`; see `group_of`."""
    count: int
    pieces: Mapping[str, tuple[str, ...]]
    """Each tokenizer's tokens at the word's first place in the text."""


@dataclass(frozen=True, slots=True)
class TokenizerComparison:
    text: TextSize
    tokenizers: Mapping[str, TokenizerFigures]
    examples: tuple[DifferentSplit, ...]


def group_of(word: str) -> str:
    """The group of a word, by its spelling without the signs around it.

    `numbers` have a digit, and `long words` at least 12 characters. `shorthand` is shorter, and has two capitals side by
    side, or is ASCII with a sign other than `'` and `-` between letters or without a vowel (`SOB`, `b/p`, `q.d.`, `hx`).
    """
    letters = [match.start() for match in _LETTER.finditer(word)]
    if any(character.isdigit() for character in word):
        return "numbers"
    if not letters:
        return "other words"
    core = word[letters[0] : letters[-1] + 1]
    if len(core) >= LONG:
        return "long words"
    spelled = len(core) > 1 and core.isascii() and (_SIGN.search(core) or not _VOWEL.search(core))
    capitals = any(a.isupper() and b.isupper() for a, b in pairwise(core))
    return "shorthand" if spelled or capitals else "other words"


GROUPS = ("shorthand", "numbers", "long words", "other words")


def compare(tokenizers: Mapping[str, Tokenizer], lines: Iterable[str], examples: int = 4) -> TokenizerComparison:
    """Compare tokenizers on the lines of a text, which are read once.

    Args:
        tokenizers: tokenizers by the names that the result has.
        lines: texts without line ends.
        examples: the largest number of examples in each group of words: those whose splits differ by the most tokens,
            summed over the text.

    Raises ValueError if the text has no words.
    """
    if examples < 0:
        raise ValueError(f"examples={examples} is negative; give the number of words to show in each group")
    counts: Counter[str] = Counter()
    sums = {name: _Sums(tokenizer) for name, tokenizer in tokenizers.items()}
    sizes: Counter[str] = Counter()
    rest = iter(lines)
    while texts := list(islice(rest, LINES)):
        words = [[match.span() for match in _WORD.finditer(text)] for text in texts]
        counts.update(text[a:b] for text, spans in zip(texts, words, strict=True) for a, b in spans)
        sizes["lines"] += len(texts)
        sizes["characters"] += sum(map(len, texts))
        for each in sums.values():
            each.add(texts, words)
        sizes["bytes"] += sum(len(text.encode()) for text in texts)
    if not counts:
        raise ValueError("the text has no words; give one with at least one character that is not white space")
    size = TextSize(sizes["lines"], counts.total(), len(counts), sizes["characters"], sizes["bytes"])
    figures = {name: each.figures(size) for name, each in sums.items()}
    return TokenizerComparison(size, figures, tuple(_examples(sums, counts, examples)))


@dataclass(slots=True)
class _Sums:
    """Sums over a text, of one tokenizer."""

    tokenizer: Tokenizer
    tokens: int = 0
    known: int = 0  # characters in known tokens, without white space
    visible: int = 0  # characters without white space
    whole: int = 0
    restored: int = 0
    used: set[int] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    per_word: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, texts: Sequence[str], words: Sequence[Sequence[Place]]) -> None:
        with encoding_errors(texts):
            encoded = self.tokenizer.raw.encode_batch(texts, add_special_tokens=False)
        decoded = self.tokenizer.decode_batch([encoding.ids for encoding in encoded])
        self.restored += sum(text == back for text, back in zip(texts, decoded, strict=True))
        for text, encoding, spans in zip(texts, encoded, words, strict=True):
            self._add_words(text, encoding.ids, encoding.offsets, spans)
            self._add_coverage(text, encoding.ids, encoding.offsets, spans)

    def _add_words(self, text: str, ids: Sequence[int], places: Sequence[Place], spans: Sequence[Place]) -> None:
        self.tokens += len(ids)
        self.used.update(ids)
        starts = [_first_visible(text, place) for place in places]
        at = 0
        for begin, end in spans:
            token_ids = []
            while at < len(ids) and starts[at] < end:
                if starts[at] >= begin:
                    token_ids.append(ids[at])
                at += 1
            word = text[begin:end]
            self.whole += len(token_ids) == 1
            self.per_word[word] += len(token_ids)
            self.first.setdefault(word, tuple(token_ids))

    def _add_coverage(self, text: str, ids: Sequence[int], places: Sequence[Place], spans: Sequence[Place]) -> None:
        unk, state = self.tokenizer.unk_id, bytearray(len(text))
        for token, (start, stop) in zip(ids, places, strict=True):
            state[start:stop] = (_UNKNOWN if token == unk else _KNOWN) * (stop - start)
            if token == unk:
                self.unknown[text[start:stop].strip() or text[start:stop]] += 1
        for begin, end in spans:
            self.visible += end - begin
            if state.count(_NONE, begin, end):
                self._add_gaps(text, state, begin, end)
            self.known += state.count(_KNOWN, begin, end)

    def _add_gaps(self, text: str, state: bytearray, begin: int, end: int) -> None:
        """Count the characters of a word that are in no token.

        A combining mark may have been composed with the character before it, and is as known as that one. BPE without an
        unknown token drops characters that its vocabulary lacks; the library then gives wrong places for the rest.
        """
        for i in range(begin + 1, end):
            if not state[i] and combining(text[i]):
                state[i] = state[i - 1]
        raw = self.tokenizer.raw
        if isinstance(raw.model, models.BPE):
            lacking = [i for i in range(begin, end) if raw.token_to_id(text[i]) is None]
            if len(lacking) == state.count(_NONE, begin, end):
                state[begin:end] = _KNOWN * (end - begin)
                for i in lacking:
                    state[i : i + 1] = _NONE
        for gap in re.finditer(rb"\0+", state[begin:end]):
            self.unknown[text[begin + gap.start() : begin + gap.end()]] += 1

    def figures(self, size: TextSize) -> TokenizerFigures:
        tokens = max(self.tokens, 1)
        return TokenizerFigures(
            self.tokenizer.kind,
            self.tokenizer.vocab_size,
            len(self.used),
            self.tokens,
            self.tokens / size.words,
            size.characters / tokens,
            size.bytes / tokens,
            self.whole / size.words,
            self.known / self.visible,
            self.unknown.total(),
            self.restored / size.lines,
            dict(self.unknown.most_common()),
        )


def _first_visible(text: str, place: Place) -> int:
    """The place of a token's first character that is not white space; -1 if there is none."""
    return next((i for i in range(*place) if not text[i].isspace()), -1)


def _examples(sums: Mapping[str, _Sums], counts: Mapping[str, int], most: int) -> Iterable[DifferentSplit]:
    def spread(word: str) -> int:
        totals = [each.per_word[word] for each in sums.values()]
        return max(totals) - min(totals)

    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for word in sorted((word for word in counts if spread(word)), key=lambda word: (-spread(word), word)):
        if len(chosen := groups[group_of(word)]) < most:
            chosen.append(word)
    for group, chosen in groups.items():
        for word in chosen:
            pieces = {name: tuple(each.tokenizer.tokens(each.first[word])) for name, each in sums.items()}
            yield DifferentSplit(word, group, counts[word], pieces)
