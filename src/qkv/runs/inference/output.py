"""Outputs for texts: `Output`, and the tokens that one may have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...generation import Acceptance

SLOTS = 8192  # the most tokens of a batch, beams and new tokens included


@dataclass(frozen=True)
class Output:
    """One output for a text.

    tokens:    its pieces as the tokenizer shows them, with the end-of-sequence token if it was generated.
    ended:     why it ended: "eos", "stop", "length" or "stuck".
    score:     see `Generated.scores`; log_probs: of each token (nats). None unless requested.
    acceptance: how speculative decoding went; None without it.
    """

    text: str
    tokens: tuple[str, ...]
    ended: str
    score: float | None = None
    log_probs: tuple[float, ...] | None = None
    acceptance: Acceptance | None = None


@dataclass(frozen=True)
class Known:
    """Allow the first `size` tokens only: a model's vocabulary may be larger than its tokenizer's."""

    size: int
    reads_ids = False

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        known = logits.clone()
        known[:, self.size :] = -torch.inf
        return known
