"""Logits processors: functions of (the tokens so far, the next token's logits) that change what may come next.

They are applied in this order, which is Hugging Face's: repetition penalty, no-repeat n-grams, minimum length, the
caller's own, and then, when sampling, temperature, top-k, top-p, min-p. Greedy decoding and sampling process logits,
beam search log-probabilities. Every one treats rows apart and leaves its arguments as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .settings import Generation


class Processor(Protocol):
    """`ids` holds the prompt and the tokens chosen so far, −1 where a row is padded."""

    def __call__(self, ids: Int[Tensor, "N T"], logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]: ...


def _mark(ids: Int[Tensor, "N S"], logits: Float[Tensor, "N V"]) -> Tensor:
    """True at the tokens that `ids` names in each row; −1 and what is outside the vocabulary names none."""
    spare = logits.shape[1]
    ids = torch.where((ids < 0) | (ids > spare), spare, ids)
    return logits.new_zeros(logits.shape[0], spare + 1, dtype=torch.bool).scatter_(1, ids, True)[:, :spare]


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide a positive logit, multiply a negative one, by `penalty` where the token occurred before.

    Keskar et al. 2019, CTRL (eq. 13).
    """

    penalty: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        less = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
        return torch.where(_mark(ids, logits), less, logits)


@dataclass(frozen=True)
class NoRepeatNGram:
    """Forbid every token that would complete an n-gram which the row already holds (Paulus et al. 2018)."""

    n: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        if ids.shape[1] < self.n:
            return logits
        windows = ids.unfold(1, self.n, 1)
        prefix = ids[:, ids.shape[1] + 1 - self.n :]
        same = (windows[..., :-1] == prefix[:, None]).all(-1)
        return logits.masked_fill(_mark(torch.where(same, windows[..., -1], -1), logits), -torch.inf)


@dataclass(frozen=True)
class MinNewTokens:
    """Forbid the end-of-sequence tokens until `ids` is `width` wide: the prompt and the tokens that must follow."""

    width: int
    eos: tuple[int, ...]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        if ids.shape[1] >= self.width:
            return logits
        logits = logits.clone()
        logits[:, list(self.eos)] = -torch.inf
        return logits


@dataclass(frozen=True)
class Temperature:
    """logits / temperature, shifted so that the greatest is 0 and no temperature overflows."""

    temperature: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)) / self.temperature


@dataclass(frozen=True)
class TopK:
    """Keep the k likeliest tokens, and any as likely as the k-th (Fan et al. 2018)."""

    k: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        least = logits.topk(min(self.k, logits.shape[1])).values[:, -1:]
        return logits.masked_fill(logits < least, -torch.inf)


@dataclass(frozen=True)
class TopP:
    """Keep the fewest likeliest tokens whose probabilities reach p, and any as likely as the least of them.

    Holtzman et al. 2020.
    """

    p: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        rising = _sorted(probs)
        spared = rising.cumsum(-1) > 1 - self.p
        spared[:, -1] = True
        least = rising.masked_fill(~spared, torch.inf).amin(-1, keepdim=True)
        return logits.masked_fill(probs < least, -torch.inf)


def _sorted(probs: Tensor) -> Tensor:
    """Each row in rising order; on a CPU by NumPy, whose sort of values alone is many times faster than PyTorch's."""
    if probs.device.type == "cpu":
        return torch.from_numpy(np.sort(probs.numpy(), axis=-1))
    return probs.sort(-1).values


@dataclass(frozen=True)
class MinP:
    """Keep tokens at least p times as likely as the likeliest (Nguyen et al. 2024)."""

    p: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        return logits.masked_fill(probs < self.p * probs.amax(-1, keepdim=True), -torch.inf)


def processors_for(
    settings: Generation, eos: Sequence[int], prompt_width: int, own: Sequence[Processor] = ()
) -> list[Processor]:
    """The processors that `settings` asks for, in the documented order, without those that would change nothing."""
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
    """The logits after every processor; `ids` is only None where the chain is empty."""
    for process in chain:
        assert ids is not None
        logits = process(ids, logits)
    return logits
