"""The best and the worst examples of an evaluation, by a score of each example."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .display import display_of

MOST = 5  # of the best and of the worst examples

Sample = dict[str, Any]


@dataclass(frozen=True)
class Extremes:
    """The best examples, best first, and the worst ones, worst first.

    by:          the name of the score, as registered in `metrics.display`.
    best, worst: samples as in `Metric.samples`, each with its "score".
    """

    by: str
    best: list[Sample]
    worst: list[Sample]


class Ranking:
    """Keeps the examples with the best and the worst scores of an evaluation, at most `MOST` of each.

    `by` is the name of the score, as registered in `metrics.display`, which knows whether higher is better.
    """

    def __init__(self, by: str) -> None:
        self._by = by
        self._sign = -1.0 if display_of(by).higher_is_better is False else 1.0
        self._count = 0
        self._best: list[tuple[float, float, int, Sample]] = []  # ± score, weight, −number, sample; sorted
        self._worst: list[tuple[float, float, int, Sample]] = []

    def add(self, score: float, sample: Callable[[], Sample], weight: float = 0.0) -> None:
        """Add an example; a score of NaN is ignored. `sample` is called only if the example is among the extremes so far.

        Of equal scores, the one with the larger `weight` is kept, then the earlier one.
        """
        if math.isnan(score):
            return
        self._count += 1
        finished: Sample | None = None
        # Twice as many of the worst, because equal scores can make the same examples the best and the worst.
        for entries, sign, most in ((self._best, self._sign, MOST), (self._worst, -self._sign, 2 * MOST)):
            key = (sign * score, weight, -self._count)
            if len(entries) == most and key < entries[-1][:3]:
                continue
            finished = finished or {**sample(), "score": score}
            entries.append((*key, finished))
            entries.sort(key=lambda entry: entry[:3], reverse=True)
            del entries[most:]

    def extremes(self) -> Extremes | None:
        """Return the best and the worst examples, none of them as both; None for fewer than two examples."""
        if self._count < 2:
            return None
        best = self._best[: (self._count + 1) // 2]
        numbers = {number for _, _, number, _ in best}
        worst = [entry for entry in self._worst if entry[2] not in numbers][: min(MOST, self._count // 2)]
        return Extremes(self._by, *([sample for *_, sample in entries] for entries in (best, worst)))
