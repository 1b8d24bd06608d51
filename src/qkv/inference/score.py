"""How likely a model holds given texts to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..generation import score as score_ids
from .text import TextModel


@dataclass(frozen=True)
class Score:
    """The log-likelihood (natural logarithm) of a text, or of a target given its source, token by token and in all."""

    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_likelihood: float
    perplexity: float


def score(text_model: TextModel, prompts: Sequence[Sequence[int]], targets: Sequence[str] | None = None) -> list[Score]:
    """Score each target given its prompt (`text_model.encode(text)`), with the end-of-sequence token where the model was
    trained to write one. Without targets, which only a language model allows, score each prompt itself.

    Log-probabilities are those that generation reports for the same tokens: a translator's output is what its decoder
    would write, with what stands around a target (BART's `<s> … </s>`). A tokenizer without a starting token leaves a
    text's first token unscored: there is nothing to predict it from.
    """
    tokenizer, task = text_model.tokenizer, text_model.task
    if targets is None and task != "continue":
        raise ValueError("this model was trained on pairs and scores targets; give one for each text")
    if targets is None:
        outputs = [prompt[1:] for prompt in prompts]
        scored = score_ids(text_model.model, prompts)
    else:
        outputs = [_output(text_model, text) for text in targets]
        scored = score_ids(text_model.model, prompts, outputs, bos_id=text_model.start)
    return [_read(tokenizer.tokens(ids), log_probs) for ids, log_probs in zip(outputs, scored.log_probs, strict=True)]


def _output(text_model: TextModel, text: str) -> list[int]:
    """The ids that the model would generate for a target."""
    if text_model.task != "translate":
        return text_model.tokenizer.encode(text, eos=text_model.task != "continue")
    told = replace(text_model, tokenizer=text_model.tokenizer.targets).encode(text)
    first = None if text_model.ids is None else text_model.ids.forced[0]
    return told if first is None or told[:1] == [first] else [first, *told]


def _read(tokens: Sequence[str], log_probs: Sequence[float]) -> Score:
    total = math.fsum(log_probs)
    perplexity = math.exp(-total / len(log_probs)) if log_probs else math.nan
    return Score(tuple(tokens), tuple(log_probs), total, perplexity)
