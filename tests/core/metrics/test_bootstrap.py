"""The paired bootstrap: values are the corpus metrics', intervals hold them, and equal systems don't differ."""

from __future__ import annotations

import random

import pytest

from qkv.core.metrics.bootstrap import paired_bootstrap
from qkv.core.metrics.text import bleu, exact_match

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat", "house", "under", "over"]


def _texts(seed: int, n: int = 60) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=8)) for _ in range(n)]


def _worse(texts: list[str], share: float, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(reversed(text.split())) if rng.random() < share else text for text in texts]


@pytest.mark.parametrize(("name", "metric"), [("bleu", bleu), ("exact_match", exact_match)])
def test_the_value_is_the_difference_of_the_corpus_metrics(name: str, metric) -> None:
    references = _texts(0)
    good, bad = _worse(references, 0.1), _worse(references, 0.6)
    result = paired_bootstrap(name, [good], [bad], references, samples=200)
    assert result.value == pytest.approx(metric(good, references).value - metric(bad, references).value)
    assert 0 < result.low < result.value < result.high and result.p < 0.02


def test_several_trainings_are_averaged() -> None:
    references = _texts(0)
    systems = [_worse(references, 0.2, seed) for seed in (1, 2)]
    result = paired_bootstrap("exact_match", systems, [references], references, samples=50)
    means = [exact_match(texts, references).value for texts in systems]
    assert result.value == pytest.approx(sum(means) / 2 - 1)


def test_a_system_does_not_differ_from_itself() -> None:
    references = _texts(0)
    outputs = _worse(references, 0.3)
    result = paired_bootstrap("bleu", [outputs], [outputs], references, samples=50)
    assert (result.value, result.low, result.high, result.p) == (0, 0, 0, 1)


def test_other_metrics_and_unequal_numbers_of_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match="exact_match and bleu, not for chrf"):
        paired_bootstrap("chrf", [["a"]], [["a"]], ["a"])
    with pytest.raises(ValueError, match="an output of each system for every reference"):
        paired_bootstrap("bleu", [["a"]], [["a", "b"]], ["a", "b"])
