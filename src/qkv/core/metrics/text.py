"""Metrics of generated text: exact match, BLEU, chrF, TER, ROUGE, word and character error rate, perplexity, bits per byte.

A reference is a text, or a list of texts if an output has several references.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..optional_libraries import need
from ..several import beside, worded
from ..spec import brief, nearest
from .base import MetricValue
from .display import register

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

register("exact_match", scale="fraction", higher_is_better=True, about="outputs that equal the truth to the letter")
register("bleu", "BLEU", "points", higher_is_better=True)
register("chrf", "chrF", "points", higher_is_better=True)
register("chrf++", "chrF++", "points", higher_is_better=True)
register("ter", "TER", "points", higher_is_better=False, about="edits, with shifts of phrases, for 100 words")
register("rouge1", "ROUGE-1", "points", higher_is_better=True)
register("rouge2", "ROUGE-2", "points", higher_is_better=True)
register("rougeL", "ROUGE-L", "points", higher_is_better=True)
register("loss", higher_is_better=False, about="mean negative log-likelihood of a token, in nats")
register("perplexity", higher_is_better=False, about="e to the loss")
register("bits_per_byte", higher_is_better=False, about="negative log-likelihood for a byte of text, in bits")
register("wer", "Word error rate", higher_is_better=False)
register("cer", "Character error rate", higher_is_better=False)


Reference = str | Sequence[str]

TOKENIZER_EXTRAS = {
    "ja-mecab": "ja",
    "ko-mecab": "ko",
    **dict.fromkeys(("spm", "flores101", "flores200", "spBLEU-1K"), "spm"),
}
"""sacreBLEU's tokenizers that need an extra of qkv."""

LIBRARIES = {**dict.fromkeys(("bleu", "chrf", "chrf++", "ter"), "sacrebleu"), **dict.fromkeys(("wer", "cer"), "jiwer")}
"""The optional libraries that compute metrics, by the metrics' names in recipes."""


def texts_of(reference: Reference) -> Sequence[str]:
    """The references of one output, as a list."""
    return [reference] if isinstance(reference, str) else reference


@worded
def exact_match(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """The fraction, 0 to 1, of outputs that equal a reference, ignoring white space around them."""
    beside(outputs=outputs, references=references)
    every = list(map(texts_of, references))
    right = sum(a.strip() in {b.strip() for b in texts} for a, texts in zip(outputs, every, strict=True))
    return MetricValue(right / len(every), f"nrefs:{max(map(len, every))}|n:{len(every)}|strip:yes")


@worded
def bleu(
    outputs: Sequence[str], references: Sequence[Reference], tokenize: str = "13a", sentence: bool = False
) -> MetricValue:
    """Corpus BLEU, 0 to 100 (Papineni et al. 2002), by sacreBLEU (Post 2018). `sentence` is for a single output: n-grams
    longer than it don't count ("effective order"). Raises ValueError if a library or a model that the tokenizer needs is
    missing."""
    return _sacre(sacre_bleu(tokenize, effective_order=sentence), outputs, references)


@lru_cache(maxsize=4)
def sacre_bleu(tokenize: str, effective_order: bool = False) -> BLEU:
    """Return sacreBLEU's BLEU with a tokenizer. Raises ValueError if a library or a model that this needs is missing."""
    need("BLEU", "sacrebleu")
    from sacrebleu.metrics import BLEU

    extra = TOKENIZER_EXTRAS.get(tokenize)
    try:
        return BLEU(tokenize=tokenize, effective_order=effective_order)
    except KeyError:
        raise ValueError(
            f"sacreBLEU has no tokenizer {brief(tokenize)}; {nearest(tokenize, BLEU.TOKENIZERS)}"
        ) from None
    except (ImportError, RuntimeError) as error:
        if extra is None:
            raise
        raise ValueError(
            f"bleu_tokenize={tokenize} needs libraries that are not installed: pip install 'qkv[{extra}]'"
        ) from error
    except OSError as error:
        raise ValueError(
            f"bleu_tokenize={tokenize} needs a model that sacreBLEU couldn't download ({error}); connect to the internet, "
            "or choose another tokenizer"
        ) from error


@worded
def chrf(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """Corpus chrF2, 0 to 100 (Popović 2015), by sacreBLEU."""
    need("chrF", "sacrebleu")
    from sacrebleu.metrics import CHRF

    return _sacre(CHRF(), outputs, references)


@worded
def chrf_plus_plus(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """Corpus chrF2++, 0 to 100: chrF2 with unigrams and bigrams of words (Popović 2017), by sacreBLEU."""
    need("chrF++", "sacrebleu")
    from sacrebleu.metrics import CHRF

    return _sacre(CHRF(word_order=2), outputs, references)


@worded
def ter(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """Translation edit rate: insertions, deletions, substitutions and shifts for 100 words of the references (Snover et al.
    2006), by sacreBLEU. 0 is best."""
    need("TER", "sacrebleu")
    from sacrebleu.metrics import TER

    return _sacre(TER(), outputs, references)


@worded
def word_error_rate(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """WER: words to substitute, insert and delete in all outputs, divided by the words of all references, by jiwer. 0 is
    best; it may exceed 1 if outputs are longer than the references. Of several references, the first counts. NaN if no
    reference has a word."""
    need("the word error rate", "jiwer")
    import jiwer

    beside(outputs=outputs, references=references)
    return _error_rate(jiwer.process_words([texts_of(texts)[0] for texts in references], list(outputs)), "words")


@worded
def character_error_rate(outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    """CER: like WER, for characters, including spaces between words."""
    need("the character error rate", "jiwer")
    import jiwer

    beside(outputs=outputs, references=references)
    firsts = [texts_of(texts)[0] for texts in references]
    return _error_rate(jiwer.process_characters(firsts, list(outputs)), "characters")


def _error_rate(alignment: Any, unit: str) -> MetricValue:
    edits = alignment.substitutions + alignment.insertions + alignment.deletions
    size = alignment.hits + alignment.substitutions + alignment.deletions
    return MetricValue(edits / size if size else math.nan, f"jiwer|edits:{edits}|{unit}:{size}|case:as it is")


ROUGE = ("rouge1", "rouge2", "rougeL")


@worded
def rouge(outputs: Sequence[str], references: Sequence[Reference], what: str) -> MetricValue:
    """ROUGE, 0 to 100 (Lin 2004): the mean over the texts of the F1 of words (`what` is "rouge1"), of pairs of words
    ("rouge2"), or of the longest common subsequence of words ("rougeL"). Of several references, the best one counts.

    Words are runs of a–z and 0–9 in lower case, without stemming, as in Google's `rouge-score`. Texts in other scripts have
    no words, and so score 0.
    """
    beside(outputs=outputs, references=references)
    if what not in ROUGE:
        raise ValueError(f"there is no ROUGE {brief(what)}; {nearest(what, ROUGE)}")
    shares = [
        max(_rouge_f1(_words(output), _words(text), what) for text in texts_of(texts))
        for output, texts in zip(outputs, references, strict=True)
    ]
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


@worded
def perplexity(nll: float, count: int) -> float:
    """exp of the mean negative log-likelihood (nats) per token; infinite if that overflows, NaN without tokens."""
    mean = nll / count if count else math.nan
    return math.inf if mean >= 700 else math.exp(mean)


@worded
def bits_per_byte(nll: float, size: int) -> float:
    """Negative log-likelihood in bits per UTF-8 byte of the text, which is comparable between tokenizers."""
    return nll / (math.log(2) * size)


def _sacre(metric: Any, outputs: Sequence[str], references: Sequence[Reference]) -> MetricValue:
    beside(outputs=outputs, references=references)
    streams = list(zip_longest(*map(texts_of, references)))  # None stands for a missing reference
    score = metric.corpus_score(list(outputs), streams)
    return MetricValue(float(score.score), str(metric.get_signature()))


OUTPUT_METRICS: dict[str, Callable[..., MetricValue]] = {
    "exact-match": exact_match,
    "bleu": bleu,
    "chrf": chrf,
    "chrf++": chrf_plus_plus,
    "ter": ter,
    "wer": word_error_rate,
    "cer": character_error_rate,
    **{name: partial(rouge, what=name) for name in ROUGE},
}
"""Metrics that compare outputs with references, by their names in recipes."""


def output_metrics(
    names: Collection[str],
    outputs: Sequence[str],
    references: Sequence[Reference],
    bleu_tokenize: str = "13a",
    sentence: bool = False,
) -> dict[str, MetricValue]:
    """Compute the `OUTPUT_METRICS` in `names`; in the results, hyphens of the names are underscores.

    `sentence` is for a single output: BLEU is then sentence BLEU.
    """
    settings = {"bleu": {"tokenize": bleu_tokenize, "sentence": sentence}}
    return {
        name.replace("-", "_"): metric(outputs, references, **settings.get(name, {}))
        for name, metric in OUTPUT_METRICS.items()
        if name in names
    }
