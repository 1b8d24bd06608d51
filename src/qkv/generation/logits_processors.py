"""Logits processors: repetition penalty, no-repeat n-grams, minimum length, and the order in which all of them apply.

A processor is a function of the tokens so far and the next token's logits that returns new logits; it treats each row by
itself and changes neither argument. The order is that of Hugging Face: repetition penalty, no-repeat n-grams, minimum
length, the caller's own, and then, when sampling, temperature, top-k, top-p, min-p. Greedy decoding and sampling process
logits; beam search processes log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .sampling import MinP, Temperature, TopK, TopP
from .settings import Generation


class Processor(Protocol):
    """`ids` holds the prompt and the tokens chosen so far, −1 if a row is padded.

    A processor that does not look at `ids` may have the attribute `reads_ids = False`, which makes speculation faster.
    """

    def __call__(self, ids: Int[Tensor, "N T"], logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]: ...


def _mark(ids: Int[Tensor, "N S"], logits: Float[Tensor, "N V"]) -> Tensor:
    """True at the tokens of each row of `ids`; −1 and ids outside the vocabulary mark none."""
    spare = logits.shape[1]
    ids = torch.where((ids < 0) | (ids > spare), spare, ids)
    return logits.new_zeros(logits.shape[0], spare + 1, dtype=torch.bool).scatter_(1, ids, True)[:, :spare]


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide a positive logit by `penalty`, or multiply a negative one, if the token occurred before.

    Keskar et al. 2019, CTRL (eq. 13).
    """

    penalty: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        less = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
        return torch.where(_mark(ids, logits), less, logits)


@dataclass(frozen=True)
class NoRepeatNGram:
    """Forbid every token that would complete an n-gram that the row already has (Paulus et al. 2018)."""

    n: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        if ids.shape[1] < self.n:
            return logits
        windows = ids.unfold(1, self.n, 1)
        prefix = ids[:, ids.shape[1] + 1 - self.n :]
        same = (windows[..., :-1] == prefix[:, None]).all(-1)
        return logits.masked_fill(_mark(torch.where(same, windows[..., -1], -1), logits), -torch.inf)


@dataclass(frozen=True)
class ForbiddenTokens:
    """Forbid some tokens."""

    reads_ids = False
    tokens: tuple[int, ...]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[:, list(self.tokens)] = -torch.inf
        return logits


@dataclass(frozen=True)
class MinNewTokens:
    """Forbid the end-of-sequence tokens until `ids` has `width` columns: the prompt and the minimum of new tokens."""

    width: int
    eos: tuple[int, ...]

    def forbidden(self, ids: Tensor) -> tuple[int, ...]:
        """The tokens that are forbidden now."""
        return self.eos if ids.shape[1] < self.width else ()

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        forbidden = self.forbidden(ids)
        return ForbiddenTokens(forbidden)(ids, logits) if forbidden else logits


def processors_for(
    settings: Generation, eos: Sequence[int], prompt_width: int, own: Sequence[Processor] = ()
) -> list[Processor]:
    """Return the processors that `settings` asks for, in the documented order, without processors that change
    nothing."""
    chain: list[Processor] = []
    if settings.repetition_penalty != 1.0:
        chain.append(RepetitionPenalty(settings.repetition_penalty))
    if settings.no_repeat_ngram_size:
        chain.append(NoRepeatNGram(settings.no_repeat_ngram_size))
    if settings.min_new_tokens and eos:
        chain.append(MinNewTokens(prompt_width + settings.min_new_tokens, tuple(eos)))
    chain.extend(own)
    if not settings.samples:
        return chain
    if settings.temperature not in (None, 1.0):
        chain.append(Temperature(settings.temperature))
    if settings.top_k:
        chain.append(TopK(settings.top_k))
    if settings.top_p not in (None, 1.0):
        chain.append(TopP(settings.top_p))
    if settings.min_p:
        chain.append(MinP(settings.min_p))
    return chain


def apply(chain: Sequence[Processor], ids: Tensor | None, logits: Tensor) -> Tensor:
    """Return the logits after every processor; `ids` may be None only if the chain is empty."""
    for process in chain:
        assert ids is not None
        logits = process(ids, logits)
    return logits
