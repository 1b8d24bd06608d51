"""Header detection: whether the first row of a table holds column names, by comparing its cells with those below.

The evidence is added as logarithms of odds, log P(cell | name) − log P(cell | data), as in naive Bayes. P(cell | data) is
estimated from the cells below: for a value that occurs nowhere else, from the number of values that occur once
(Good 1953). So `category` above 1,000 cells that are `ham` or `spam` is a name, `ham` is not, and a sentence above
sentences says nothing. Python's `csv.Sniffer` has one vote.
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ...core.spec import brief

_WORDS = """
id idx index no nr number line row key source src target tgt trg input output in out text texts sentence sentences phrase
original translation translated reference hypothesis prompt answer question response context label labels class category
score rating stars sentiment premise split lang language title summary document article review comment url date time name
value column attribution license licence unnamed message body content tag tags topic intent emotion choices file filename
path image x y user assistant human bot system query completion passage keyword sender subject role chosen rejected
anchor positive negative pos neg set subset fold
"""
_CODES = """
ar bn cs da de el en es fa fi fr he hi hu id it ja ko nb nl no pl pt ro ru sv th tr uk vi zh
eng deu ger fra fre spa ita por rus jpn zho chi ara hin kor nld pol
"""
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"[-+]?[$€£]?(\d[\d.,]*|[.,]\d+)(e[-+]?\d+)?\s?%?|[-+]?(nan|inf|infinity)", re.I)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*|\d{1,2}:\d{2}.*")
_IDENTIFIER = re.compile(r"[^\W\d]+\d+|\w*_\w*|[a-z]+[A-Z]\w*")  # v1, user_id, isSpam
_ENDS = tuple(".!?…。！？")
_LENGTHS = (1, 3, 7, 15, 31)  # the last number of characters in each class of lengths
_OF_NAMES = (0.1, 0.2, 0.36, 0.26, 0.06, 0.02)  # the share of column names in each
_OF_WIDE = 3  # letters of an alphabet that a Chinese character stands for, about
_LONGEST = 40  # characters of a common name
_MOST = 6.0  # log odds from one property of a cell
_STRONG = 1.5  # log odds of one property without which a row is data
_UNSURE = 2.0  # log odds of a decision that may well be wrong
_NEAR = 50  # rows whose lengths are compared apart: a file may be sorted by length


class Evidence(NamedTuple):
    """Log odds that the first row holds names, and the reason in words."""

    odds: float
    reason: str = ""


class Heading(NamedTuple):
    """The decision on a first row: the column names, if it holds them, and why."""

    names: tuple[str, ...]
    reason: str
    unsure: bool

    def note(
        self, file: str, line: int = 1, as_data: str = "data.header=false", as_names: str = "data.header=true"
    ) -> str:
        """Describe the decision, and say how to overrule it. `file` is the file's name, and `line` the number of the row."""
        row = f"{'the first line' if line == 1 else f'line {line:,}'} of {file}"
        if self.names:
            said = f"{row} is read as names, {', '.join(short(self.names))}"
            other = f"{as_data} reads it as data"
        else:
            said, other = f"{row} is read as data", f"{as_names} reads it as names"
        reason = f": {self.reason}" if self.reason else ""
        return f"{said}{reason}; {'that is not certain, and ' if self.unsure else ''}{other}"


def heading(first: Sequence[str], rows: Sequence[Sequence[str]]) -> Heading:
    """Decide whether a first row holds the names of the columns of the rows below, or of a sample of them."""
    cells = [cell.strip() for cell in first]
    rows = [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    if not any(cells):
        return Heading((), "", False)
    if all(map(_is_known, cells)):  # files with names, one after another
        rows = [row for row in rows if row != cells]
    evidence = [*_of_row(cells, rows), *_of_sniffer(cells, rows)]
    counted = _is_range(cells, rows)
    for j, cell in enumerate(cells):
        evidence += _of_cell(cell, [row[j] for row in rows if j < len(row)], j == 0, counted)
    odds = sum(one.odds for one in evidence)
    if max(one.odds for one in evidence) < _STRONG:  # shorter texts than those below, and nothing else
        odds = min(odds, -_UNSURE / 2)
    side = 1 if odds > 0 else -1
    reason = max((one for one in evidence if one.reason), key=lambda one: side * one.odds, default=Evidence(0))
    said = reason.reason if side * reason.odds > 0 else ""
    return Heading(tuple(cells) if odds > 0 else (), said, abs(odds) < _UNSURE)


def check_names(path: Path, names: Sequence[str], first: Path, others: Sequence[str], columns: Iterable[int]) -> None:
    """Check that columns that are read by number have the same names as in the training file `first`. Raises
    ValueError."""
    for column in columns:
        here, there = (part[column] if column < len(part) else "" for part in (names, others))
        if names and others and here.casefold() != there.casefold():
            raise ValueError(
                f"column {column} of {brief(path)} is {here[:60]!r}, and of {brief(first)} it is {there[:60]!r}; name the "
                "columns to read instead of numbering them, or give both files the same columns"
            )


def short(names: Sequence[str]) -> list[str]:
    """Names cut to a length that fits into an error message."""
    return [name[:60] or "(empty)" for name in names[:50]]


def _of_cell(cell: str, below: list[str], leads: bool, counted: bool) -> Iterator[Evidence]:
    """The evidence of one cell and the cells below it."""
    shown, kinds = repr(cell[:40]), Counter(map(kind_of, below))
    kind, common = kind_of(cell), kinds.most_common(1)[0][0] if kinds else ""
    if not below:
        yield _of_words(cell, below)
        return
    if kind == "empty":
        if leads and _is_running(below):
            yield Evidence(_MOST, "its first cell is empty, above row numbers")
        else:
            yield _odds(0.9 if kinds["empty"] > 0.5 * len(below) else 0.03, _share(kinds["empty"], below))
        return
    if not (counted and kind == "number"):
        yield _odds(
            0.97 if kind == "text" else 0.01,
            _share(kinds[kind], below),
            f"{shown} is above {common}s" if kind == "text" and common in ("number", "date") else "",
            f"{shown} is a {kind}, as the cells below it" if kind == common != "text" else "",
        )
    if kind != "text":
        return
    yield _of_words(cell, below)
    if common != "text":
        return
    values = Counter(below)
    unseen = (sum(n == 1 for n in values.values()) + 1) / (len(below) + 2)
    if cell not in values:
        few = f"none of the {len(below):,} cells below {shown} that were compared equals it, and they repeat"
        yield _odds(0.98, unseen, few)
    else:
        yield _odds(0.02, 1 - unseen, "", f"{shown} is in its column again")
    yield from _of_shape(cell, below)


def _of_shape(cell: str, below: list[str]) -> Iterator[Evidence]:
    """The evidence of the length of a text, of its last character, and of its spelling."""
    size = _length(cell)
    likely = max(_share(sum(_length(one) == size for one in part), part) for part in (below[:_NEAR], below))
    yield _odds(_OF_NAMES[size], max(likely, 0.1), f"{cell[:40]!r} is not as long as the cells below it")
    ends = cell.endswith(_ENDS)
    yield _odds(0.03 if ends else 0.97, _share(sum(one.endswith(_ENDS) == ends for one in below), below))
    if _IDENTIFIER.fullmatch(cell):
        alike = sum(bool(_IDENTIFIER.fullmatch(one)) for one in below)
        yield _odds(0.2, (alike + 0.05) / (len(below) + 1), f"{cell[:40]!r} is spelled as an identifier")


def _of_words(cell: str, below: list[str]) -> Evidence:
    """The evidence of words that are common in headers."""
    usual = max(0.02, min(0.5, (sum(map(_is_known, below)) + 0.05) / (len(below) + 1)))
    return _odds(0.5, usual if _is_known(cell) else 1 - usual, f"{cell[:40]!r} is a common column name")


def _of_row(cells: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Evidence]:
    """The evidence of equal cells in the first row, and of a row that counts the columns."""
    if _is_range(cells, rows):
        yield Evidence(_MOST, "its cells count the columns")
    if _repeats(cells):
        yield _odds(0.005, _share(sum(map(_repeats, rows)), rows), "", "two of its cells are equal")


def _of_sniffer(cells: list[str], rows: Sequence[Sequence[str]]) -> Iterator[Evidence]:
    """The vote of Python's `csv.Sniffer`, on the rows as they were read."""
    width = len(cells)
    if sample := [row for row in rows if len(row) == width][:20]:
        text = io.StringIO()
        csv.writer(text).writerows([cells, *sample])
        yield Evidence(1.0 if _Sniffer().has_header(text.getvalue()) else -1.0)


class _Sniffer(csv.Sniffer):
    """Python's test for a header, on rows whose separator is known."""

    def sniff(self, sample: str, delimiters: str | None = None) -> type[csv.Dialect]:
        return csv.excel


def _odds(name: float, data: float, for_names: str = "", for_data: str = "") -> Evidence:
    """The evidence of a property with these probabilities for a name and for data."""
    odds = max(-_MOST, min(_MOST, math.log(name / data)))
    return Evidence(odds, for_names if odds > 0 else for_data)


def _share(count: int, of: Sequence[object]) -> float:
    """The probability of a property that `count` of the cells below have."""
    return (count + 0.2) / (len(of) + 0.4)


def kind_of(cell: str) -> str:
    """What is in a stripped cell: "empty", "number", "date" or "text"."""
    if not cell:
        return "empty"
    return "date" if _DATE.fullmatch(cell) else "number" if _NUMBER.fullmatch(cell) else "text"


def _length(cell: str) -> int:
    """The class of a length, see `_LENGTHS`."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in cell)
    return sum(len(cell) + (_OF_WIDE - 1) * wide > most for most in _LENGTHS)


def _repeats(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return len(set(filled)) < len(filled)


def _is_running(below: Sequence[str]) -> bool:
    """Whether the first of the cells below are row numbers, such as pandas writes before each row."""
    near = below[:_NEAR]
    if not near or not all(cell.isdecimal() for cell in near):
        return False
    return int(near[0]) in (0, 1) if len(near) == 1 else all(int(b) - int(a) == 1 for a, b in pairwise(near))


def _is_range(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row counts its columns, as pandas does for columns without names, and no other row does so."""

    def counts(row: Sequence[str]) -> bool:
        filled = row[1:] if row and not row[0] else row
        whole = [int(cell) for cell in filled if cell.isdecimal()]
        return len(whole) == len(filled) > 0 and all(b - a == 1 for a, b in pairwise(whole))

    if not counts(cells) or any(map(counts, rows)):
        return False
    indexed = cells[0] == "" and _is_running([row[0] for row in rows if row])
    texts = any(kind_of(row[j]) == "text" for row in rows for j in range(min(len(row), len(cells))))
    from_start = next(cell for cell in cells if cell) in ("0", "1")
    return (from_start and (indexed or texts or len(cells) > 2)) or (len(cells) > 3 and len(rows) > 3)


def _is_known(cell: str) -> bool:
    """Whether a cell consists of words common in headers: `id`, `text_1`, `German`, `de`."""
    if len(cell) > _LONGEST or re.search(r"[.!?,;]", cell):
        return False
    words = _WORD.findall(cell.lower())
    return bool(words) and _known().issuperset(words)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Return common header words, language codes and language names. `language_names.txt` lists names from CLDR 47 (Unicode
    License v3): English names with one word of more than 4 letters, and the languages of the codes in each other's words."""
    names = Path(__file__).with_name("language_names.txt").read_text(encoding="utf-8")
    return frozenset([*_WORDS.split(), *_CODES.split(), *names.split()])
