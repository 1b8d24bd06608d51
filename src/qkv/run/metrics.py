"""Numbers that say how good outputs are: exact match, BLEU, chrF, and the likelihoods' perplexity and bits per byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..data.judge import Measured


def exact_match(outputs: Sequence[str], truths: Sequence[str]) -> Measured:
    """The fraction, 0 to 1, of outputs that equal the truth, character for character but for space around them."""
    right = sum(a.strip() == b.strip() for a, b in zip(outputs, truths, strict=True))
    return Measured(right / len(truths), f"nrefs:1|n:{len(truths)}|strip:yes")


def bleu(outputs: Sequence[str], truths: Sequence[str], tokenize: str = "13a") -> Measured:
    """Corpus BLEU, 0 to 100 (Papineni et al. 2002), by sacreBLEU (Post 2018)."""
    from sacrebleu.metrics import BLEU

    return _sacre(BLEU(tokenize=tokenize), outputs, truths)


def chrf(outputs: Sequence[str], truths: Sequence[str]) -> Measured:
    """Corpus chrF2, 0 to 100 (Popović 2015), by sacreBLEU."""
    from sacrebleu.metrics import CHRF

    return _sacre(CHRF(), outputs, truths)


def perplexity(nll: float, count: int) -> float:
    """exp of the mean negative log-likelihood (nats) of a token; infinite where that overflows."""
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nll: float, size: int) -> float:
    """Negative log-likelihood in bits, for each UTF-8 byte of the text: comparable between tokenizers."""
    return nll / (math.log(2) * size)


def _sacre(metric: Any, outputs: Sequence[str], truths: Sequence[str]) -> Measured:
    found = metric.corpus_score(list(outputs), [list(truths)])
    return Measured(float(found.score), str(metric.get_signature()))
