"""Normalization of recognized texts before they are compared, by the rules of Whisper's authors."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, cast

from pydantic import TypeAdapter

from ..json_files import checked, read_json
from ..spec import brief

Normalizer = Literal["none", "basic", "english"]
"""How texts are normalized: not at all, in any language, or in English (Radford et al. 2022, appendix C)."""
_SPELLINGS = TypeAdapter(dict[str, str])


def normalizer(kind: Normalizer, spellings: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Return the function that normalizes a text. `spellings` maps words to their replacements; only `english` uses it."""
    functions = {"none": str, "basic": basic, "english": partial(english, spellings=spellings)}
    return cast(Callable[[str], str], functions[kind])


def read_spellings(path: str) -> dict[str, str]:
    """Read a file of spellings: a JSON object that maps words to words, such as {"colour": "color"}. Raises ValueError that
    names the file if it is missing or holds anything else."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(
            f"there is no file of spellings {brief(path)}; a Whisper model's directory has one, normalizer.json"
        )
    return checked(_SPELLINGS, read_json(file), str(file))


def basic(text: str) -> str:
    """Normalize a text of any language: lower case, NFKC, without what stands in brackets, single spaces, and spaces for
    marks, symbols and punctuation."""
    folded = unicodedata.normalize("NFKC", _without_brackets(text.lower()))
    return _single_spaces("".join(" " if unicodedata.category(c)[0] in "MSP" else c for c in folded).lower())


def english(text: str, spellings: Mapping[str, str] | None = None) -> str:
    """Normalize an English text: as `basic`, and contractions are written out, numbers become digits, titles whole words,
    hesitations such as "uh" nothing, and letters lose their diacritics.

    `spellings` replaces words, such as "colour" by "color"; a Whisper model's directory has them in `normalizer.json`.
    """
    from .english_numbers import in_digits

    text = re.sub(r"\b(hmm|mm|mhm|mmm|uh|um)\b", "", _without_brackets(text.lower()))
    text = re.sub(r"\s+'", "'", text)
    for short, long in _WRITTEN_OUT:
        text = short.sub(long, text)
    text = re.sub(r"(\d),(\d)", r"\1\2", text)
    text = re.sub(r"\.([^0-9]|$)", r" \1", text)
    text = in_digits(_plain_letters(text))
    text = " ".join((spellings or {}).get(word, word) for word in text.split())
    text = re.sub(r"[.$¢€£]([^0-9])", r" \1", text)  # signs that belong to no number
    return _single_spaces(re.sub(r"([^0-9])%", r"\1 ", text))


def _without_brackets(text: str) -> str:
    """A text without what stands in brackets, which says who speaks or what is heard."""
    return re.sub(r"\(([^)]+?)\)", "", re.sub(r"[<\[][^>\]]*[>\]]", "", text))


def _single_spaces(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


_KEPT = ".%$¢€£"  # of numbers
_REPLACED = "œ oe Œ OE ø o Ø O æ ae Æ AE ß ss ẞ SS đ d Đ D ð d Ð D þ th Þ th ł l Ł L"
_LETTERS = dict(zip(_REPLACED.split()[::2], _REPLACED.split()[1::2], strict=True))


def _plain_letters(text: str) -> str:
    """A text without diacritics, and with spaces for marks, symbols and punctuation, except signs of numbers."""
    return "".join(map(_plain_letter, unicodedata.normalize("NFKD", text)))


def _plain_letter(letter: str) -> str:
    if letter in _KEPT:
        return letter
    category = unicodedata.category(letter)
    return _LETTERS.get(letter, "" if category == "Mn" else " " if category[0] in "MSP" else letter)


_SHORT = """
mr mister mrs missus st saint dr doctor prof professor capt captain gov governor ald alderman gen general sen senator rep
representative pres president rev reverend hon honorable asst assistant assoc associate lt lieutenant col colonel jr junior
sr senior esq esquire
"""
_TITLES = _SHORT.split()
# In this order.
_WRITTEN_OUT = [
    (re.compile(short), long)
    for short, long in {
        r"\bwon't\b": "will not",
        r"\bcan't\b": "can not",
        r"\blet's\b": "let us",
        r"\bain't\b": "aint",
        r"\by'all\b": "you all",
        r"\bwanna\b": "want to",
        r"\bgotta\b": "got to",
        r"\bgonna\b": "going to",
        r"\bi'ma\b": "i am going to",
        r"\bimma\b": "i am going to",
        r"\bwoulda\b": "would have",
        r"\bcoulda\b": "could have",
        r"\bshoulda\b": "should have",
        r"\bma'am\b": "madam",
        **{rf"\b{short}\b": f"{long} " for short, long in zip(_TITLES[::2], _TITLES[1::2], strict=True)},
        **{rf"'d {verb}\b": f" had {verb}" for verb in ("been", "gone", "done")},
        **{rf"'s {verb}\b": f" has {verb}" for verb in ("been", "gone", "got")},
        r"n't\b": " not",
        r"'re\b": " are",
        r"'s\b": " is",
        r"'d\b": " would",
        r"'ll\b": " will",
        r"'t\b": " not",
        r"'ve\b": " have",
        r"'m\b": " am",
    }.items()
]
