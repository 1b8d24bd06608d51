"""Timestamp tokens while decoding speech: where they may stand, as a logits processor (Radford et al. 2022, §2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class TimestampRules:
    """Timestamps are the tokens from `first` on, each one step later than the one before.

    The first new token, after a prompt of `width` tokens, is a timestamp of at most `first` + `latest`. Timestamps come in
    pairs, the end of one segment and the beginning of the next, and don't decrease; only the end of the text (`eos`) may
    follow a single one. Where all timestamps together are likelier than the likeliest other token, a timestamp is chosen.
    `never` is the token that asks for a text without timestamps.
    """

    width: int
    first: int
    eos: int
    never: int | None = None
    latest: int | None = None

    def __call__(self, ids: Int[Tensor, "N T"], logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        logits, first = logits.clone(), self.first
        if self.never is not None:
            logits[:, self.never] = -torch.inf
        for row, new in zip(logits, ids[:, self.width :].tolist(), strict=True):
            self._forbid(row, new)
        if ids.shape[1] == self.width:
            logits[:, :first] = -torch.inf
            if self.latest is not None:
                logits[:, first + self.latest + 1 :] = -torch.inf
        log_probs = logits.float().log_softmax(-1)
        likelier = log_probs[:, first:].logsumexp(-1) > log_probs[:, :first].amax(-1)
        logits[:, :first] = logits[:, :first].masked_fill(likelier[:, None], -torch.inf)
        return logits

    def _forbid(self, row: Float[Tensor, " V"], new: list[int]) -> None:
        """Forbid what can't follow the new tokens of one row."""
        first = self.first
        last, single = bool(new) and new[-1] >= first, len(new) > 1 and new[-2] < first
        if last and single:
            row[: self.eos] = -torch.inf  # no text: the second of a pair, or the end
        elif last:
            row[first:] = -torch.inf
        times = [token for token in new if token >= first]
        if times:
            row[first : times[-1] + (not (last and single))] = -torch.inf
