"""How likely a model holds given texts to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..data.tokenizer import Tokenizer
from ..generate import score as score_ids
from .text import encode


@dataclass(frozen=True)
class Score:
    """The log-likelihood (natural logarithm) of a text, or of a target given its source, token by token and in all."""

    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_likelihood: float
    perplexity: float


def score(
    model: Any, tokenizer: Tokenizer, texts: Sequence[str], targets: Sequence[str] | None = None
) -> list[Score]:
    """Encoder–decoder: each target (with its end) given its source. Language model: each text, or, with targets, what
    follows it.

    A language model without a starting token can't score a text's first token, which is then left out.
    """
    sources = [encode(model, tokenizer, text) for text in texts]
    if model.is_encoder_decoder:
        if targets is None:
            raise ValueError("an encoder–decoder scores pairs; give a target for each text")
        outputs = [tokenizer.encode(text, eos=True) for text in targets]
        scored = score_ids(model, sources, outputs, bos_id=tokenizer.bos_id)
    elif targets is not None:
        outputs = [tokenizer.encode(text) for text in targets]
        scored = score_ids(model, sources, outputs)
    else:
        outputs = [row[1:] for row in sources]
        scored = score_ids(model, sources)
    return [_read(tokenizer, ids, log_probs) for ids, log_probs in zip(outputs, scored.log_probs, strict=True)]


def _read(tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]) -> Score:
    total = math.fsum(log_probs)
    perplexity = math.exp(-total / len(log_probs)) if log_probs else math.nan
    return Score(tuple(tokenizer.tokens(list(ids))), tuple(log_probs), total, perplexity)
