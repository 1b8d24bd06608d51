"""The best and the worst examples of a stream of scores."""

from __future__ import annotations

import random
from functools import partial

import pytest

from qkv.core.metrics.extremes import MOST, Ranking


def ranked(by: str, scores: list[float], weights: list[float] | None = None) -> tuple[list[int], list[int]]:
    """The numbers of the best and of the worst scores."""
    ranking = Ranking(by)
    for i, score in enumerate(scores):
        ranking.add(score, partial(dict, number=i), 0.0 if weights is None else weights[i])
    extremes = ranking.extremes()
    assert extremes is not None and extremes.by == by
    assert all(sample["score"] == scores[sample["number"]] for sample in extremes.best + extremes.worst)
    return [sample["number"] for sample in extremes.best], [sample["number"] for sample in extremes.worst]


@pytest.mark.parametrize(("by", "sign"), [("chrf", 1), ("wer", -1)])
def test_the_extremes_match_sorting(by: str, sign: int) -> None:
    scores = [float(n) for n in range(40)]
    random.Random(0).shuffle(scores)
    ordered = sorted(range(40), key=lambda i: -sign * scores[i])
    assert ranked(by, scores) == (ordered[:MOST], ordered[: -MOST - 1 : -1])


def test_of_equal_scores_the_heavier_and_then_the_earlier_is_kept() -> None:
    assert ranked("chrf", [1.0] * 4 + [0.0] * 8, [1, 3, 2, 3, *[0] * 8]) == ([1, 3, 2, 0, 4], [5, 6, 7, 8, 9])


def test_few_examples_are_not_both_best_and_worst() -> None:
    assert ranked("chrf", [0.1, 0.3, 0.2]) == ([1, 2], [0])
    assert ranked("chrf", [0.5, 0.5]) == ([0], [1])
    assert ranked("chrf", [0.5] * 12) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_no_score_is_no_example() -> None:
    ranking = Ranking("chrf")
    ranking.add(1.0, dict)
    ranking.add(float("nan"), dict)
    assert ranking.extremes() is None


def test_samples_are_made_only_for_extremes() -> None:
    made: list[int] = []

    def sample(i: int) -> dict[str, int]:
        made.append(i)
        return {"number": i}

    ranking = Ranking("chrf")
    for i, score in enumerate([*range(10), *range(20, 25), *[15] * 50]):
        ranking.add(float(score), partial(sample, i))
    assert made == list(range(15))
