"""Generated facts about people, with questions, for extractive question answering."""

from __future__ import annotations

from random import Random
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from ..readers.squad import question_example
from ..source import Example
from .base import GeneratedSource, check_range


class _Kind(NamedTuple):
    statement: str
    question: str
    choices: tuple[str, ...]


_KINDS = (
    _Kind(
        "{who} lives in {what}.", "Where does {who} live?", ("Lima", "Oslo", "Kyoto", "Accra", "Quito", "Perth", "Riga")
    ),
    _Kind("{who} works as a {what}.", "What is {who}'s job?", ("baker", "pilot", "tailor", "judge", "farmer", "clown")),
    _Kind("{who} was born in {what}.", "When was {who} born?", tuple(map(str, range(1900, 2000)))),
    _Kind(
        "{who} plays the {what}.", "What does {who} play?", ("flute", "drums", "violin", "old piano", "tuba", "harp")
    ),
    _Kind(
        "{who} likes {what}.", "What does {who} like?", ("rice", "black tea", "plums", "goat cheese", "soup", "figs")
    ),
)
_PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")


class Facts(GeneratedSource, kind="facts"):
    """Texts of `shortest` to `longest` facts of two kinds about up to four people, and a question about one of them.

    unanswerable: the share of questions that the text does not answer: about another person, or another fact about one.
    """

    shortest: int = Field(default=3, ge=2, le=7)
    longest: int = Field(default=6, ge=2, le=7)
    unanswerable: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_range(self.shortest, self.longest)
        return self

    def generate(self, random: Random) -> Example:
        kinds = random.sample(_KINDS, 2)
        pairs = [(who, kind) for who in random.sample(_PEOPLE, 4) for kind in kinds]
        picked = random.sample(pairs, random.randint(self.shortest, self.longest))
        facts = [(who, kind, random.choice(kind.choices)) for who, kind in picked]
        context = " ".join(kind.statement.format(who=who, what=what) for who, kind, what in facts)
        if random.random() < self.unanswerable:
            who, kind = random.choice([pair for pair in pairs if pair not in picked])
            return question_example(kind.question.format(who=who), context, ("",), (0,))
        chosen = random.randrange(len(facts))
        who, kind, what = facts[chosen]
        before = "".join(kind.statement.format(who=who, what=what) + " " for who, kind, what in facts[:chosen])
        start = len(before) + kind.statement.format(who=who, what="\0").index("\0")
        return question_example(kind.question.format(who=who), context, (what,), (start,))
