"""Header detection: whether the first row of a CSV or TSV file holds column names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from babel import Locale

_WORDS = """
id idx index no nr number line row key source src target tgt trg input output in out text texts sentence sentences phrase
original translation translated reference hypothesis prompt answer question response context label labels class category
score rating stars sentiment premise split lang language title summary document article review comment url date time name
value column attribution license licence
"""
_CODES = """
ar bn cs da de el en es fa fi fr he hi hu id it ja ko nb nl no pl pt ro ru sv th tr uk vi zh
eng deu ger fra fre spa ita por rus jpn zho chi ara hin kor nld pol
"""
_CELL = re.compile(r"[^\W\d_]+")
_LONGEST = 40  # characters in a name


def is_heading(cells: Sequence[str]) -> bool:
    """Whether all cells are different and consist of words common in headers: `id`, `source`, `text_1`, `German`, `de`."""
    names = [cell.strip() for cell in cells]
    if len(names) < 2 or len(set(names)) < len(names) or not all(0 < len(name) <= _LONGEST for name in names):
        return False
    return all(_is_name(name) for name in names)


def short(names: Sequence[str]) -> list[str]:
    """Names cut to a length that fits into an error message."""
    return [name[:60] for name in names[:50]]


def _is_name(cell: str) -> bool:
    words = _CELL.findall(cell.lower())
    return bool(words) and not re.search(r"[.!?,;]", cell) and _known().issuperset(words)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Words common in headers, and codes and names of languages."""
    codes = [code for code in _CODES.split() if len(code) == 2]
    named = [name for name in Locale("en").languages.values() if " " not in name and len(name) > 4]
    own = [Locale(place).languages.get(code, "") for place in codes for code in codes]
    names = (word for name in [*named, *own] for word in _CELL.findall(name.lower()))
    return frozenset([*_WORDS.split(), *_CODES.split(), *names])
