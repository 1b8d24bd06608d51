"""Label tokens readably: special tokens by name, spaces visible, parts of one character as that character with a number."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_LATER = re.compile(r" (?!1/)\d+/\d+$")  # ends the labels of further parts of a character
_JOINER = "\u200d"
_SPECIAL = re.compile(r"<[^<>]+>|\[[A-Z]+\]")
LONGEST = 24  # characters of a label


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return a label for each token. Tokens that hold only some bytes of a character are labelled `é 1/2`, `é 2/2`."""
    labels = tokenizer.tokens(ids)
    start = 0
    while start < len(ids):
        if not _BYTE.search(labels[start]):
            start += 1
            continue
        stop = start + 1
        while stop < len(ids) and _BYTE.search(labels[stop]) and "\ufffd" in tokenizer.decode(ids[start:stop]):
            stop += 1
        text = tokenizer.decode(ids[start:stop])
        if stop - start > 1 and text.strip() and "\ufffd" not in text:
            shown = text.replace(" ", "▁")
            labels[start:stop] = [f"{shown} {part}/{stop - start}" for part in range(1, stop - start + 1)]
        start = stop
    return [printable(label) for label in labels]


def printable(text: str) -> str:
    """Return a text with control characters written out, cut to `LONGEST` characters between graphemes.

    Characters that join or change others are written out too if they stand alone, and combining marks are drawn on a circle.
    """
    if text and all(c == _JOINER or "\ufe00" <= c <= "\ufe0f" for c in text):
        return "".join(f"\\u{ord(c):04x}" for c in text)
    if unicodedata.category(text[:1] or " ") in ("Mn", "Me", "Mc"):
        text = f"◌{text}"
    shown = "".join(c if c.isprintable() or c == _JOINER else f"\\u{ord(c):04x}" for c in text) or "∅"
    if len(shown) <= LONGEST:
        return shown
    stop = LONGEST - 1
    while stop > 1 and _continues(shown, stop):
        stop -= 1
    return shown[:stop] + "…"


def _continues(text: str, index: int) -> bool:
    """Whether the character at `index` belongs to the same grapheme as the one before it (approximately)."""
    c = text[index]
    modifies = unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Mc") or "🏻" <= c <= "🏿"
    flags = "🇦" <= c <= "🇿" and "🇦" <= text[index - 1] <= "🇿"
    return bool(modifies) or c == _JOINER or text[index - 1] == _JOINER or flags


def word_ranges(labels: Sequence[str]) -> list[range]:
    """Return the tokens of each word. A word begins at a space, or with word pieces at a token without `##`; special tokens,
    and tokens without letters and digits, are words of their own."""
    spaced = any("▁" in label for label in labels)
    starts: list[int] = []
    for i, label in enumerate(labels):
        before = labels[i - 1] if i else ""
        apart = not i or is_mark(label) or (is_mark(before) and not before.startswith("▁"))
        inside = bool(_LATER.search(label)) or label.startswith("##") or (spaced and not label.startswith("▁"))
        if not bool(_LATER.search(label)) and (apart or not inside):
            starts.append(i)
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(labels)], strict=True)]


def is_mark(label: str) -> bool:
    """Whether a token is a special one or has no letters and digits."""
    return bool(_SPECIAL.fullmatch(label)) or not any(c.isalnum() for c in _plain(label))


def find_word(word: str, labels: Sequence[str]) -> list[int]:
    """Return the indices of the tokens that spell a word, at every place where it occurs: whole words, or if there are none,
    parts of words.

    Raises ValueError if no tokens spell it.
    """
    places = whole_words(word, labels) or _spelled(word, labels)
    if not places:
        shown = " ".join(labels[:40])
        raise ValueError(f"no tokens on display spell the word {brief(word)}; choose a word of these: {shown}")
    return sorted({token for place in places for token in place})


def whole_words(word: str, labels: Sequence[str]) -> list[range]:
    """Return the tokens that spell a word, at every place where it is not a part of a longer one."""
    bounds = {border for tokens in word_ranges(labels) for border in (tokens.start, tokens.stop)}
    bounds |= {i + 1 for i, label in enumerate(labels) if label == "▁"}
    return [place for place in _spelled(word, labels) if place.start in bounds and place.stop in bounds]


def _spelled(word: str, labels: Sequence[str]) -> list[range]:
    """Return the tokens that spell a word, at every place where it occurs, also within longer words."""
    pieces = [_plain(label) for label in labels]
    places: list[range] = []
    for start in range(len(pieces)):
        joined = ""
        for stop in range(start, len(pieces)):
            joined += pieces[stop]
            if joined.casefold() == word.casefold() and pieces[start]:
                while stop + 1 < len(labels) and _LATER.search(labels[stop + 1]):
                    stop += 1
                places.append(range(start, stop + 1))
            if len(joined) >= len(word):
                break
    return places


def _plain(label: str) -> str:
    """Return a label without the marks of spaces and of word pieces."""
    whole = re.fullmatch(r"(.*) (\d+)/(\d+)", label)
    if whole:
        label = whole[1] if whole[2] == "1" else ""
    return label.removeprefix("##").strip("▁ ")
