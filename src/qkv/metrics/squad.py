"""Exact match and F1 of answers to questions, as SQuAD's script computes them (Rajpurkar et al. 2016, 2018)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from .display import register

register("token_f1", "F1 of tokens", "fraction", higher_is_better=True)
register("exact", "Exact match", "fraction", higher_is_better=True)

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """As SQuAD's script compares answers: in lower case, without punctuation, articles and more than single spaces."""
    bare = answer.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def exact(answer: str, truths: Sequence[str]) -> float:
    """1 where the answer is one of the truths, both normalized; else 0. No answer is ""."""
    return float(any(normalized(answer) == truth for truth in _normalized(truths)))


def token_f1(answer: str, truths: Sequence[str]) -> float:
    """The highest F1 with a truth, 2 · shared words / (words of both), of normalized answers; of none, whether both are."""
    return max(_f1(normalized(answer).split(), truth.split()) for truth in _normalized(truths))


def _normalized(truths: Sequence[str]) -> list[str]:
    """As SQuAD 2's script has them: those of which something is left, or else the one that there is none."""
    return [truth for truth in map(normalized, truths) if truth] or [""]


def _f1(mine: list[str], theirs: list[str]) -> float:
    if not mine or not theirs:
        return float(mine == theirs)
    shared = (Counter(mine) & Counter(theirs)).total()
    return 2 * shared / (len(mine) + len(theirs))
