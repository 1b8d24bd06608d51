"""Generated film reviews whose sentiment depends on word order, for text classification.

    although the acting is not dull , the plot is weak       negative

A bag of words is a weak predictor: `not` negates only the next adjective, and only the main clause counts.
"""

from __future__ import annotations

from random import Random

from ..source import Example
from .base import GeneratedSource

_THINGS = ("plot", "acting", "music", "ending", "dialogue", "pacing", "camera", "cast", "humor", "script")
_GOOD = ("good", "clever", "moving", "bright", "funny", "warm", "tense", "fresh", "brave", "subtle")
_BAD = ("bad", "dull", "weak", "cheap", "slow", "cold", "flat", "stale", "loud", "clumsy")
_NOT = ("not", "never", "hardly")


class Verdicts(GeneratedSource, kind="verdicts"):
    """One clause, or two of opposite sentiment, with the label `positive` or `negative` of the main one."""

    def generate(self, random: Random) -> Example:
        good = random.random() < 0.5
        first, second = random.sample(_THINGS, 2)
        main, other = _clause(first, good, random), _clause(second, not good, random)
        two = (f"{other} but {main}", f"although {other} , {main}", f"{main} although {other}", f"{other} , yet {main}")
        return {"text": random.choice((main, *two)), "label": "positive" if good else "negative"}


def _clause(thing: str, good: bool, random: Random) -> str:
    negated = random.random() < 0.5
    adjective = random.choice(_GOOD if good != negated else _BAD)
    return f"the {thing} is {random.choice(_NOT) + ' ' if negated else ''}{adjective}"
