"""Entities encoded by tags (IOB2, IOBES, CoNLL), and their precision, recall and F1 as in CoNLL's shared tasks (NER)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["iob2", "iobes", "conll", "plain"]
"""How tags encode entities.

iob2:  an entity of the type X is B-X (I-X)*; an I-X after neither is no entity (Tjong Kim Sang & Veenstra 1999).
iobes: an entity is S-X, or B-X (I-X)* E-X; incomplete ones are none.
conll: B-X begins an entity, and so does any tag of X after one that is not of X, as conlleval counts; also for files in
       which I-X begins entities (IOB1).
plain: tags without entities, such as parts of speech.
"""


class Entity(NamedTuple):
    """An entity of a type, the words `start` … `stop` − 1."""

    type: str
    start: int
    stop: int


def scheme_of(tags: Iterable[str]) -> Scheme:
    """Recognize the scheme of a set of tags."""
    inside = {tag for tag in tags if tag != "O"}
    prefixes = {tag[:2] for tag in inside}
    if not inside or not prefixes <= {"B-", "I-", "E-", "S-"}:
        return "plain"
    if prefixes & {"E-", "S-"}:
        return "iobes"
    begun = all(f"B-{tag[2:]}" in inside for tag in inside)
    return "iob2" if begun else "conll"


def entities(tags: Sequence[str], scheme: Scheme) -> list[Entity]:
    """Return the entities in the tags of a sentence, from left to right."""
    if scheme == "plain":
        return []
    split = [("O", "") if tag[1:2] != "-" else (tag[0], tag[2:]) for tag in tags]
    if scheme == "conll":
        return _chunks(split)
    return _complete(split, closed=scheme == "iobes")


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


def agreement(predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], scheme: Scheme) -> Agreement:
    """Count the entities in the predicted and the true tags of sentences, and those that agree."""
    right = n_predicted = n_true = 0
    for pair in zip(predicted, true, strict=True):
        ours, theirs = (set(entities(tags, scheme)) for tags in pair)
        right, n_predicted, n_true = right + len(ours & theirs), n_predicted + len(ours), n_true + len(theirs)
    return Agreement(right, n_predicted, n_true)
