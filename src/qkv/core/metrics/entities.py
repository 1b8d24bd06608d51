"""Entities encoded by tags (IOB1, IOB2, IOBES, BILOU), and their precision, recall and F1 as in CoNLL (NER)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from ..several import worded
from ..spec import brief

Scheme = Literal["iob2", "iobes", "bilou", "iob1", "conll", "plain"]
"""How tags encode entities. The letter may be alone, for entities of one type (`B`, `I`), joined by `_`, in lower case
(`b-X`), or at the end (`X-B`).

iob2:  an entity of the type X is B-X (I-X)*; an I-X after neither is no entity (Tjong Kim Sang & Veenstra 1999).
iobes: an entity is S-X, or B-X (I-X)* E-X; incomplete ones are none.
bilou: iobes with the letters U and L for S and E; M and W for I and S are read as well (BMES, BMEWO).
iob1:  an entity is (I-X)+, and begins with B-X only behind another one of X (Ramshaw & Marcus 1995); counted as conll.
conll: B-X begins an entity, and so does any tag of X after one that is not of X, as conlleval counts.
plain: tags without entities, such as parts of speech.
"""
_TAG = re.compile(r"([BIESLUMW])(?:[-_](.*))?", re.DOTALL | re.IGNORECASE)
_AT_END = re.compile(r"(.+)[-_]([BIESLUMW])", re.DOTALL | re.IGNORECASE)
_OUTSIDE = ("O", "o", "")
_LETTERS = {"L": "E", "U": "S", "M": "I", "W": "S"}


class Entity(NamedTuple):
    """An entity of a type, the words `start` … `stop` − 1."""

    type: str
    start: int
    stop: int


@worded
def scheme_of(tags: Iterable[str], sentences: Iterable[Sequence[str]] = ()) -> Scheme:
    """Recognize the scheme of a set of tags; iob1 from iob2 by `sentences`, in which entities begin with I."""
    inside = {tag for tag in tags if tag not in _OUTSIDE}
    written = {_parts(tag)[0] for tag in inside}
    letters = {letter.upper() for letter in written}
    bare = {tag for tag in inside if len(tag) == 1}
    if not inside or "" in letters or (bare and not (bare == inside and "B" in letters and len(bare) > 1)):
        return "plain"
    at_end = [tag for tag in inside if not _TAG.fullmatch(tag)]
    usual = not at_end and written == letters
    if not usual and ("B" not in letters or len(written) > len(letters) or len(at_end) not in (0, len(inside))):
        return "plain"
    if letters & set("ESLUMW"):
        return "bilou" if letters & set("LU") else "iobes"
    if any(_split(tag)[1] not in {_split(one)[1] for one in inside if _split(one)[0] == "B"} for tag in inside):
        return "conll"
    begun = Counter(first for sentence in sentences for first in _beginnings(sentence))
    return "iob1" if begun["I"] > begun["B"] else "iob2"


def _beginnings(sentence: Sequence[str]) -> Iterator[str]:
    """The first letter of each entity in a sentence, as conlleval counts."""
    split = [_split(tag) for tag in sentence]
    yield from (split[one.start][0] for one in _chunks(split))


def misfit(scheme: Scheme, tags: Iterable[str]) -> str | None:
    """Why tags don't follow a scheme; None if they may."""
    inside = {tag for tag in tags if tag not in _OUTSIDE}
    others = sorted(tag for tag in inside if not _parts(tag)[0])
    if scheme != "plain" and (others or scheme_of(inside) == "plain"):
        return f"{brief((others or sorted(inside) or ['O'])[0])} is no tag of an entity, such as 'B-X'"
    closing = sorted(tag for tag in inside if _parts(tag)[0].upper() in set("ESLUMW"))
    if scheme in ("iob2", "iob1") and closing:
        return f"{brief(closing[0])} is a tag of {scheme_of(inside)}"
    if scheme in ("iobes", "bilou") and not closing:
        return "no entity ends in them (E-X, S-X)"
    return None


@worded
def entities(tags: Sequence[str], scheme: Scheme) -> list[Entity]:
    """Return the entities in the tags of a sentence, from left to right."""
    if scheme == "plain":
        return []
    split = [_split(tag) for tag in tags]
    if scheme in ("conll", "iob1"):
        return _chunks(split)
    return _complete(split, closed=scheme in ("iobes", "bilou"))


def near(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """If tags spell no entities together: the tags that would, such as `B-X`, and the others."""
    inside = sorted({tag for tag in tags if tag not in _OUTSIDE})
    like = [tag for tag in inside if len(tag) > 1 and _parts(tag)[0]]
    return like, [tag for tag in inside if tag not in like]


def _parts(tag: str) -> tuple[str, str]:
    """The letter of a tag as it is written, and the type of its entity; no letter in a tag of another form."""
    if match := _TAG.fullmatch(tag):
        return match[1], match[2] or ""
    match = _AT_END.fullmatch(tag)
    return (match[2], match[1]) if match else ("", "")


def _split(tag: str) -> tuple[str, str]:
    """The letter of a tag, as in iobes, and the type of its entity."""
    letter, type_ = _parts(tag)
    letter = letter.upper()
    return (_LETTERS.get(letter, letter), type_) if letter else ("O", "")


def _complete(split: list[tuple[str, str]], closed: bool) -> list[Entity]:
    """Entities B (I)*, or if they must be `closed`, S and B (I)* E; each of one type."""
    complete, i = [], 0
    while i < len(split):
        prefix, type_ = split[i]
        start, i = i, i + 1
        if prefix == "S" and closed:
            complete.append(Entity(type_, start, i))
        elif prefix == "B":
            while i < len(split) and split[i] == ("I", type_):
                i += 1
            if not closed:
                complete.append(Entity(type_, start, i))
            elif i < len(split) and split[i] == ("E", type_):
                i += 1
                complete.append(Entity(type_, start, i))
    return complete


def _chunks(split: list[tuple[str, str]]) -> list[Entity]:
    """Runs of one type, cut before B and S and after E and S."""
    chunks: list[Entity] = []
    before = ("O", "")
    for i, (prefix, type_) in enumerate(split):
        goes_on = prefix in "IE" and before[0] in "BI" and before[1] == type_
        if prefix != "O":
            chunks.append(Entity(type_, chunks.pop().start if goes_on else i, i + 1))
        before = (prefix, type_)
    return chunks


class Agreement(NamedTuple):
    """Counts of entities, for micro-averages: an entity is right if its type, beginning and end are."""

    right: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """2 · right / (predicted + true); 0 if there are neither."""
        return 2 * self.right / (self.predicted + self.true) if self.predicted + self.true else 0.0


@worded
def agreement(predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], scheme: Scheme) -> Agreement:
    """Count the entities in the predicted and the true tags of sentences, and how many agree."""
    right = n_predicted = n_true = 0
    for pair in zip(predicted, true, strict=True):
        ours, theirs = (set(entities(tags, scheme)) for tags in pair)
        right, n_predicted, n_true = right + len(ours & theirs), n_predicted + len(ours), n_true + len(theirs)
    return Agreement(right, n_predicted, n_true)
