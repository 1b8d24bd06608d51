"""Entities in rows of tags (IOB2, IOBES, CoNLL) and their precision, recall and F1, as CoNLL's shared tasks measure them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["iob2", "iobes", "conll", "plain"]
"""How tags spell entities.

iob2:  an entity of the type X is B-X (I-X)*; an I-X that follows neither is none (Tjong Kim Sang & Veenstra 1999).
iobes: it is S-X, or B-X (I-X)* E-X; what is not whole is none.
conll: B- begins one, and so does any tag of X after one that is not of X: what conlleval counts, for files in which I-X
       begins entities (IOB1), too.
plain: tags that spell none, such as parts of speech.
"""


class Entity(NamedTuple):
    """A type, and the words `start` … `stop` − 1."""

    type: str
    start: int
    stop: int


def scheme_of(tags: Iterable[str]) -> Scheme:
    """The scheme that a set of tags is of."""
    inside = {tag for tag in tags if tag != "O"}
    prefixes = {tag[:2] for tag in inside}
    if not inside or not prefixes <= {"B-", "I-", "E-", "S-"}:
        return "plain"
    if prefixes & {"E-", "S-"}:
        return "iobes"
    begun = all(f"B-{tag[2:]}" in inside for tag in inside)
    return "iob2" if begun else "conll"


def entities(tags: Sequence[str], scheme: Scheme) -> list[Entity]:
    """The entities in the tags of a sentence, from left to right."""
    if scheme == "plain":
        return []
    split = [("O", "") if tag[1:2] != "-" else (tag[0], tag[2:]) for tag in tags]
    if scheme == "conll":
        return _chunks(split)
    return _whole(split, closed=scheme == "iobes")


def _whole(split: list[tuple[str, str]], closed: bool) -> list[Entity]:
    """B (I)*, or S and B (I)* E where they have to be `closed`, each of one type."""
    found, i = [], 0
    while i < len(split):
        prefix, type_ = split[i]
        start, i = i, i + 1
        if prefix == "S" and closed:
            found.append(Entity(type_, start, i))
        elif prefix == "B":
            while i < len(split) and split[i] == ("I", type_):
                i += 1
            if not closed:
                found.append(Entity(type_, start, i))
            elif i < len(split) and split[i] == ("E", type_):
                i += 1
                found.append(Entity(type_, start, i))
    return found


def _chunks(split: list[tuple[str, str]]) -> list[Entity]:
    """Runs of one type, cut before B and S and after E and S."""
    found: list[Entity] = []
    before = ("O", "")
    for i, (prefix, type_) in enumerate(split):
        goes_on = prefix in "IE" and before[0] in "BI" and before[1] == type_
        if prefix != "O":
            found.append(Entity(type_, found.pop().start if goes_on else i, i + 1))
        before = (prefix, type_)
    return found


class Agreement(NamedTuple):
    """Micro-averaged over all entities: an entity is right where type, beginning and end are."""

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
        """2 · right / (predicted + true); 0 where there is neither."""
        return 2 * self.right / (self.predicted + self.true) if self.predicted + self.true else 0.0


def agreement(predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], scheme: Scheme) -> Agreement:
    """Compare the tags of sentences."""
    right = n_predicted = n_true = 0
    for mine, theirs in zip(predicted, true, strict=True):
        found, wanted = set(entities(mine, scheme)), set(entities(theirs, scheme))
        right, n_predicted, n_true = right + len(found & wanted), n_predicted + len(found), n_true + len(wanted)
    return Agreement(right, n_predicted, n_true)
