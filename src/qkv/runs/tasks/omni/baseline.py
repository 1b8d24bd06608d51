"""What simple methods answer: each digit by ridge regression on its numbers, words looked up, and their sum by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....core.metrics.baselines import Baseline
from ....data.any_digits import PLACES, AnyDigits, answer_of
from ....data.source import Example, Source
from .numbers import MediaNumbers

LEARNED = 6000  # training questions that the regressions learn from
_RIDGE = 1e-2  # times the mean square of a number

Matrix = NDArray[np.float64]


def ridge_by_rule(source: Source, examples: Sequence[Example], media: Mapping[str, MediaNumbers]) -> list[Baseline]:
    """Ridge regression of a digit's class on the numbers that the model reads, one for each kind of media. It is told which
    kind is which, and adds without a mistake; nothing for questions that are not about digits."""
    if not isinstance(source, AnyDigits) or not examples:
        return []
    training = [term for one in islice(source.examples("train", seed=0), LEARNED) for term in one["terms"]]
    guesses: dict[int, int] = {}
    for form, name in PLACES.items():
        learned = [term for term in training if term.form == form]
        asked = [term for one in examples for term in one["terms"] if term.form == form]
        if not learned or not asked or name not in media:
            continue
        seen, new = (_flat([media[name](term.value) for term in terms]) for terms in (learned, asked))
        found = _predicted(seen, np.array([term.digit for term in learned]), new)
        guesses |= {id(term): int(digit) for term, digit in zip(asked, found, strict=True)}
    right = [
        answer_of([(term.form, guesses.get(id(term), term.digit)) for term in one["terms"]]) == one["answer"]
        for one in examples
    ]
    about = "the digit in each picture, sound and series by ridge regression, words and sums by rule"
    return [Baseline("ridge regression and arithmetic", {"exact": sum(right) / len(right)}, about)]


def _flat(numbers: Sequence[Any]) -> Matrix:
    return np.stack([one.reshape(-1) for one in numbers]).astype(np.float64)


def _predicted(seen: Matrix, digits: NDArray[np.int64], new: Matrix) -> NDArray[np.int64]:
    """The likeliest digit of each row of `new`."""
    mean, truth = seen.mean(0), np.eye(10)[digits]
    centered = seen - mean
    gram = centered.T @ centered
    gram[np.diag_indices_from(gram)] += _RIDGE * len(seen) * float(centered.var())
    weights = np.linalg.solve(gram, centered.T @ (truth - truth.mean(0)))
    scores = (new - mean) @ weights + truth.mean(0)
    return np.asarray(scores.argmax(1), np.int64)
