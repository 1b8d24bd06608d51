"""`Evaluation`: the `evaluation` settings of a recipe (metrics, limits, samples)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..core.spec import Spec

Metric = Literal[
    "exact-match", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "wer", "cer", "perplexity", "bits-per-byte"
]
ROUGE: tuple[Metric, ...] = ("rouge1", "rouge2", "rougeL")
TEXT_METRICS: tuple[Metric, ...] = (
    "exact-match",
    "bleu",
    "chrf",
    *ROUGE,
    "wer",
    "cer",
)  # of generated texts beside the truth
USUAL: tuple[Metric, ...] = ("exact-match", "bleu", "chrf", "perplexity", "bits-per-byte")  # where nothing is said

Count = Annotated[int, Field(ge=1)]


def decoded(steps: int | None) -> int | None:
    """How many examples are decoded at most where a training has so few steps, a quick check: decoding all would take
    longer than the training. None is no limit."""
    return None if steps is None or steps >= _SHORT else 16 + 4 * steps


_SHORT = 100


class Evaluation(Spec):
    """metrics:   what is measured; None is everything that the data allow but ROUGE, which is for summaries, and
               the error rates of words and characters (wer, cer), which are for transcripts.
    examples:  how many of the validation split each evaluation during training takes; None is all.
    num_beams: the beams of those evaluations; the one after training decodes as `generation` says.
    test_examples: how many of the test split the evaluation after training takes; None is all. Where outputs are decoded,
               a training of less than 100 steps is a quick check, and fewer are taken.
    samples:   outputs kept to be shown beside the truth.
    bleu_tokenize: sacreBLEU's tokenizer: `13a`, `intl`, `char`, `zh` or `none`.
    """

    metrics: tuple[Metric, ...] | None = None
    examples: Count | None = 500
    num_beams: Count = 1
    test_examples: Count | None = None
    samples: Annotated[int, Field(ge=0)] = 6
    bleu_tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
