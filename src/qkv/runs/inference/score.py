"""Score texts: their log-likelihood and perplexity under a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...generation import score as score_ids
from .loaded import LoadedModel


@dataclass(frozen=True)
class TextScore:
    """The log-likelihood (natural logarithm) of a text, or of a target given its source, per token and in total."""

    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_likelihood: float
    perplexity: float


def score(run: LoadedModel, prompts: Sequence[Sequence[int]], targets: Sequence[str] | None = None) -> list[TextScore]:
    """Score each target given its prompt (`run.encode(text)`), with the end-of-sequence token if the model was
    trained to write one. Without targets, which only a language model allows, score each prompt itself.

    Log-probabilities are the same as generation reports for the same tokens: a translator's target includes the special
    tokens that its decoder generates (BART's `<s> … </s>`). Without a starting token the first token of a text has no
    score, because nothing precedes it.
    """
    tokenizer, task = run.words, run.task
    if targets is None and task != "continue":
        raise ValueError("this model was trained on pairs and scores targets; give a target for each text")
    if targets is None:
        outputs = [prompt[1:] for prompt in prompts]
        scored = score_ids(run.model, prompts)
    else:
        outputs = [target_ids(run, text) for text in targets]
        scored = score_ids(run.model, prompts, outputs, bos_id=run.start)
    return [_score(tokenizer.tokens(ids), log_probs) for ids, log_probs in zip(outputs, scored.log_probs, strict=True)]


def target_ids(run: LoadedModel, text: str) -> list[int]:
    """The ids that the model would generate for a target."""
    if run.task != "translate":
        return run.words.encode(text, eos=run.task != "continue")
    ids = run.encode(text, run.words.targets)
    first = run.roles.forced[0]
    return ids if first is None or ids[:1] == [first] else [first, *ids]


def _score(tokens: Sequence[str], log_probs: Sequence[float]) -> TextScore:
    from ...core.metrics.text import perplexity

    total = math.fsum(log_probs)
    return TextScore(tuple(tokens), tuple(log_probs), total, perplexity(-total, len(log_probs)))
