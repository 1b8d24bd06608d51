"""`Generated`: the result of generation, with tokens, scores and the reason why each sequence ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

Reason = Literal["eos", "stop", "length", "stuck"]


@dataclass
class Acceptance:
    """How speculation went: passes of the model, the prompt's included, and how many proposed tokens it accepted."""

    passes: int = 0
    proposed: int = 0
    accepted: int = 0

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(self.passes + other.passes, self.proposed + other.proposed, self.accepted + other.accepted)


@dataclass
class Hypothesis:
    """One continuation: its new tokens, their log-probabilities if requested, and its score (higher is better)."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    score: float = float("-inf")
    reason: Reason = "stuck"
    acceptance: Acceptance = field(default_factory=Acceptance)


@dataclass(frozen=True)
class Generated:
    """Continuations of B prompts, `num_samples` of each; everything is indexed [prompt][sample].

    prompts:   the decoder's tokens before generation (an encoder–decoder's starting token), without padding.
    sequences: the new tokens, with the end-of-sequence token if it ended them.
    reasons:   why each ended: "eos"; "stop", the caller's stop; "length", max_new_tokens or the model's context;
               "stuck", no token was allowed (if a beam search finds fewer hypotheses, the rest are empty and "stuck").
    scores:    Σ log p / length**length_penalty, of processed probabilities in a beam search, else of the model's own;
               None if neither beams nor scores were requested. The results of a beam search come best first.
    log_probs: log p of each new token under the model itself, before any processor; None unless scores were requested.
    acceptance: how speculation went for each continuation; None without speculation.
    notes:     remarks for the user, such as that the model's context cut an output off.
    """

    prompts: tuple[tuple[int, ...], ...]
    sequences: list[list[list[int]]]
    reasons: list[list[Reason]]
    scores: list[list[float]] | None = None
    log_probs: list[list[list[float]]] | None = None
    acceptance: list[list[Acceptance]] | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> list[list[int]]:
        """The first continuation of each prompt."""
        return [samples[0] for samples in self.sequences]

    def full(self) -> list[list[list[int]]]:
        """Each prompt with its continuation appended."""
        return [[[*prompt, *new] for new in news] for prompt, news in zip(self.prompts, self.sequences, strict=True)]

    def tensor(self, pad_id: int = 0, device: torch.device | str | None = None, width: int = 0) -> Tensor:
        """(B · num_samples, W + T) ids: prompts padded on the left to W ≥ width, new tokens on the right to T."""
        width = max(width, *map(len, self.prompts))
        longest = max(map(len, chain.from_iterable(self.sequences)))
        rows = [
            [pad_id] * (width - len(prompt)) + [*prompt, *new] + [pad_id] * (longest - len(new))
            for prompt, news in zip(self.prompts, self.sequences, strict=True)
            for new in news
        ]
        return torch.tensor(rows, dtype=torch.long, device=device)
