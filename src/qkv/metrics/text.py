"""Metrics of generated text: exact match, BLEU, chrF, ROUGE, word and character error rate, perplexity, bits per byte."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .base import MetricValue
from .display import register

register("exact_match", scale="fraction", higher_is_better=True, about="outputs that equal the truth to the letter")
register("bleu", "BLEU", "points", higher_is_better=True)
register("chrf", "chrF", "points", higher_is_better=True)
register("rouge1", "ROUGE-1", "points", higher_is_better=True)
register("rouge2", "ROUGE-2", "points", higher_is_better=True)
register("rougeL", "ROUGE-L", "points", higher_is_better=True)
register("loss", higher_is_better=False, about="mean negative log-likelihood of a token, in nats")
register("perplexity", higher_is_better=False, about="e to the loss")
register("bits_per_byte", higher_is_better=False, about="negative log-likelihood for a byte of text, in bits")
register("wer", "Word error rate", higher_is_better=False)
register("cer", "Character error rate", higher_is_better=False)


def exact_match(outputs: Sequence[str], truths: Sequence[str]) -> MetricValue:
    """The fraction, 0 to 1, of outputs that equal the truth, ignoring white space around them."""
    right = sum(a.strip() == b.strip() for a, b in zip(outputs, truths, strict=True))
    return MetricValue(right / len(truths), f"nrefs:1|n:{len(truths)}|strip:yes")


def bleu(outputs: Sequence[str], truths: Sequence[str], tokenize: str = "13a") -> MetricValue:
    """Corpus BLEU, 0 to 100 (Papineni et al. 2002), by sacreBLEU (Post 2018)."""
    from sacrebleu.metrics import BLEU

    return _sacre(BLEU(tokenize=tokenize), outputs, truths)


def chrf(outputs: Sequence[str], truths: Sequence[str]) -> MetricValue:
    """Corpus chrF2, 0 to 100 (Popović 2015), by sacreBLEU."""
    from sacrebleu.metrics import CHRF

    return _sacre(CHRF(), outputs, truths)


def word_error_rate(outputs: Sequence[str], truths: Sequence[str]) -> MetricValue:
    """WER: words to substitute, insert and delete in all outputs, divided by the words of all truths, by jiwer. 0 is best;
    it may exceed 1 if outputs are longer than the truth. NaN if no truth has a word."""
    import jiwer

    return _error_rate(jiwer.process_words(list(truths), list(outputs)), "words")


def character_error_rate(outputs: Sequence[str], truths: Sequence[str]) -> MetricValue:
    """CER: like WER, for characters, including spaces between words."""
    import jiwer

    return _error_rate(jiwer.process_characters(list(truths), list(outputs)), "characters")


def _error_rate(alignment: Any, unit: str) -> MetricValue:
    edits = alignment.substitutions + alignment.insertions + alignment.deletions
    size = alignment.hits + alignment.substitutions + alignment.deletions
    return MetricValue(edits / size if size else math.nan, f"jiwer|edits:{edits}|{unit}:{size}|case:as it is")


def rouge(outputs: Sequence[str], truths: Sequence[str], what: str) -> MetricValue:
    """ROUGE, 0 to 100 (Lin 2004): the mean over the texts of the F1 of words (`what` is "rouge1"), of pairs of words
    ("rouge2"), or of the longest common subsequence of words ("rougeL").

    Words are runs of a–z and 0–9 in lower case, without stemming, as in Google's `rouge-score`. Texts in other scripts have
    no words, and so score 0.
    """
    shares = [_rouge_f1(_words(a), _words(b), what) for a, b in zip(outputs, truths, strict=True)]
    return MetricValue(100 * math.fsum(shares) / len(shares), "mean F1|words:a-z0-9|case:lower|stemmer:no")


def _rouge_f1(output: list[str], truth: list[str], what: str) -> float:
    if what == "rougeL":
        same, predicted, true = _common(output, truth), len(output), len(truth)
    else:
        n = {"rouge1": 1, "rouge2": 2}[what]
        a, b = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (output, truth))
        same, predicted, true = (a & b).total(), a.total(), b.total()
    return 2 * same / (predicted + true) if same else 0.0


def _common(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0  # the value to the upper left
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if word == other else max(row[j], row[j - 1])
    return row[-1]


def _words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def perplexity(nll: float, count: int) -> float:
    """exp of the mean negative log-likelihood (nats) per token; infinite if that overflows."""
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nll: float, size: int) -> float:
    """Negative log-likelihood in bits per UTF-8 byte of the text, which is comparable between tokenizers."""
    return nll / (math.log(2) * size)


def _sacre(metric: Any, outputs: Sequence[str], truths: Sequence[str]) -> MetricValue:
    score = metric.corpus_score(list(outputs), [list(truths)])
    return MetricValue(float(score.score), str(metric.get_signature()))
