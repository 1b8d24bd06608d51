"""Paired bootstrap: how certain the difference of two systems is, from the outputs of both for the same test examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..optional_libraries import need
from ..several import worded
from .text import Reference, exact_match, sacre_bleu, texts_of

SAMPLES = 1000

Counts = NDArray[np.float64]
"""(outputs, counts): what each output adds to the sums from which a metric of the corpus is computed."""


@dataclass(frozen=True)
class Difference:
    """The difference of a metric between two systems.

    value:     of the whole test set.
    low, high: the interval of 95 % of the resampled test sets.
    p:         two-sided: how likely resampled test sets are to contradict the sign of `value`.
    """

    value: float
    low: float
    high: float
    p: float


@worded
def paired_bootstrap(
    metric: str,
    outputs: Sequence[Sequence[str]],
    baseline: Sequence[Sequence[str]],
    references: Sequence[Reference],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    tokenize: str = "13a",
) -> Difference:
    """Compare a system with a baseline by a corpus metric, `exact_match` or `bleu` (Koehn 2004).

    outputs, baseline: for each training of the system (of the baseline), its outputs, in the order of `references`. The
        metrics of several trainings are averaged; in each of the `samples`, all are of the same resampled examples.

    Raises ValueError for another metric, or if there are not as many outputs as references.
    """
    if metric not in METRICS:
        raise ValueError(f"the paired bootstrap is for {' and '.join(METRICS)}, not for {metric}")
    if any(len(texts) != len(references) for texts in (*outputs, *baseline)):
        raise ValueError("the paired bootstrap needs an output of each system for every reference")
    count, total = METRICS[metric]
    ours, theirs = ([count(texts, references, tokenize) for texts in system] for system in (outputs, baseline))

    def difference(weights: Counts) -> float:
        means = [sum(total(weights @ counts) for counts in system) / len(system) for system in (ours, theirs)]
        return means[0] - means[1]

    n, rng = len(references), np.random.default_rng(seed)
    value = difference(np.ones(n))
    resampled = np.array(
        [difference(np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)) for _ in range(samples)]
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    opposite = min(np.mean(resampled <= 0), np.mean(resampled >= 0))
    return Difference(value, float(low), float(high), min(1.0, 2 * (float(opposite) * samples + 1) / (samples + 1)))


def _count_matches(outputs: Sequence[str], references: Sequence[Reference], tokenize: str) -> Counts:
    right = [exact_match([text], [reference]).value for text, reference in zip(outputs, references, strict=True)]
    return np.array([[value, 1.0] for value in right])


def _exact_match(sums: Counts) -> float:
    return float(sums[0] / sums[1])


def _count_ngrams(outputs: Sequence[str], references: Sequence[Reference], tokenize: str) -> Counts:
    """Matching n-grams, all n-grams, and the lengths of output and reference."""
    bleu = sacre_bleu(tokenize, effective_order=True)  # it counts the same, and does not warn
    scores = [
        bleu.sentence_score(text, list(texts_of(reference)))
        for text, reference in zip(outputs, references, strict=True)
    ]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], dtype=float)


def _bleu(sums: Counts) -> float:
    need("BLEU", "sacrebleu")
    from sacrebleu.metrics import BLEU

    numbers = [round(value) for value in sums]
    score = BLEU.compute_bleu(
        correct=numbers[:4], total=numbers[4:8], sys_len=numbers[8], ref_len=numbers[9], smooth_method="exp"
    )
    return float(score.score)


METRICS: dict[str, tuple[Callable[[Sequence[str], Sequence[Reference], str], Counts], Callable[[Counts], float]]] = {
    "exact_match": (_count_matches, _exact_match),
    "bleu": (_count_ngrams, _bleu),
}
"""By metric: the counts of each output, and the metric of their sums."""
