"""How metrics are called and written for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .svg import readable

FRACTIONS = (
    *("exact_match", "accuracy", "top5", "f1", "macro_f1", "micro_f1", "entity_f1", "token_f1", "exact", "mcc"),
    *("spearman", "pearson", "miou", "pixel_accuracy", "map", "map50", "masked_accuracy", "sentence_accuracy"),
    *("precision", "recall", "explained", "span_accuracy", "alignment"),
)
"""From 0 to 1, or −1 to 1 where they are correlations; shown times 100."""
_SHARES = (
    "exact_captions",
    "exact_answers",
    "entity_precision",
    "entity_recall",
    "replaced",
)  # parts of one that is drawn
SCORES = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
QUALITY = (*FRACTIONS, *SCORES)
"""Drawn together: the more the better."""
ERRORS = ("loss", "perplexity", "bits_per_byte", "wer", "cer", "mse", "mae", "frame_nll")
"""The less the better."""

_CORRELATIONS = ("mcc", "spearman", "pearson")
_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "top5": "Top-5 accuracy",
    "f1": "F1",
    "macro_f1": "Macro F1",
    "micro_f1": "Micro F1",
    "mcc": "Matthews correlation",
    "entity_f1": "F1 of entities",
    "token_f1": "F1 of tokens",
    "exact": "Exact match",
    "miou": "Mean IoU",
    "map": "Mean AP",
    "map50": "AP at IoU 0.5",
    "wer": "Word error rate",
    "cer": "Character error rate",
    "mse": "Squared error",
    "mae": "Absolute error",
    "entity_precision": "Precision of entities",
    "entity_recall": "Recall of entities",
    "frame_nll": "Loss of a frame",
    "generator": "Loss of the generator",
    "replaced": "Replaced tokens",
    "next_sentence": "Loss of next sentences",
    "class": "Loss of classes",
    "box": "Loss of boxes",
    "giou": "Loss of boxes' overlap",
    "last_value_mse": "Squared error of the last value",
}
HOW = {
    "exact_match": "outputs that equal the truth to the letter",
    "loss": "mean negative log-likelihood of a token, in nats",
    "perplexity": "e to the loss",
    "bits_per_byte": "negative log-likelihood for a byte of text, in bits",
}


def taken(evaluation: Mapping[str, Any]) -> str:
    """How many examples an evaluation took, and of how many."""
    examples, available = evaluation["examples"], evaluation.get("available")
    if "available" not in evaluation or available == examples:  # a file of an older version does not say
        return f"{examples:,} examples"
    return f"{examples:,} of {available:,} examples" if available else f"the first {examples:,} examples of more"


def better(metric: str) -> str | None:
    """Whether "max" or "min" of a metric is better; None for one that is not known here."""
    return "max" if metric in QUALITY else "min" if metric in ERRORS else None


def titled(key: str) -> str:
    return _NAMES.get(key) or key.replace("_", " ").capitalize()


def scaled(key: str, value: float) -> float:
    return 100 * value if key in FRACTIONS else value


def shown(key: str, value: float) -> str:
    if not math.isfinite(value):
        return "not finite"
    if key in _CORRELATIONS:
        return f"{value:.3f}"
    if key in (*FRACTIONS, *_SHARES):
        return f"{100 * value:.2f} %"
    return f"{value:.2f}" if key in QUALITY else readable(value)
