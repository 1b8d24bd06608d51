"""Exact match and token F1 of question answering, as SQuAD's script computes them (Rajpurkar et al. 2016, 2018)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from ..several import worded
from .display import register

register("token_f1", "F1 of tokens", "fraction", higher_is_better=True)
register("exact", "Exact match", "fraction", higher_is_better=True)

_PUNCTUATION = str.maketrans("", "", string.punctuation)


@worded
def normalized(answer: str) -> str:
    """Normalize an answer as SQuAD's script does: lower case, single spaces, no punctuation and no articles."""
    bare = answer.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


@worded
def exact(answer: str, truths: Sequence[str]) -> float:
    """1 if the normalized answer is one of the normalized truths, else 0. "" stands for no answer."""
    return float(any(normalized(answer) == truth for truth in _normalized(truths)))


@worded
def token_f1(answer: str, truths: Sequence[str]) -> float:
    """The highest F1 with a truth, 2 · shared words / (words of both), after normalization; 1 if both are ""."""
    return max(_f1(normalized(answer).split(), truth.split()) for truth in _normalized(truths))


def _normalized(truths: Sequence[str]) -> list[str]:
    """Normalized truths that are not empty, or else the single truth "", as in SQuAD 2's script."""
    return [truth for truth in map(normalized, truths) if truth] or [""]


def _f1(answer: list[str], truth: list[str]) -> float:
    if not answer or not truth:
        return float(answer == truth)
    shared = (Counter(answer) & Counter(truth)).total()
    return 2 * shared / (len(answer) + len(truth))
